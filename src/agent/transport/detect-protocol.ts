import type { Socket } from 'node:net'
import { type DetectedProtocol, detectProtocol } from '../../rpc/protocol-detection.ts'
import type { StartTimer } from '../../rpc/timer.ts'

/** A connection whose first bytes tell its framing. */
export interface DetectedConnection {
  readonly socket: Socket
  readonly framing: Exclude<DetectedProtocol, 'need-more' | 'invalid'>
  /** All that has been read from it. */
  readonly firstBytes: Buffer
}

export interface ProtocolDetectionOptions {
  /** How many may wait at a time; then the oldest is closed. */
  readonly limit: number
  /** How long a connection that began to speak may take to say which framing it speaks. */
  readonly headerMs: number
  readonly startTimer: StartTimer
  readonly detected: (connection: DetectedConnection) => void
  /** Called before a connection is closed that said nothing of use. */
  readonly refused: (socket: Socket, reason: string) => void
}

/**
 * Holds connections until their framing is known. One that has sent nothing stays, as a descriptor without a buffer;
 * one that speaks neither framing, or stops within its first bytes, is closed.
 */
export class ProtocolDetection {
  readonly #options: ProtocolDetectionOptions
  /** The oldest first; the functions let go of a socket without closing it. */
  readonly #waiting = new Map<Socket, () => void>()

  constructor(options: ProtocolDetectionOptions) {
    this.#options = options
  }

  /** Takes an accepted socket that nothing was read from. */
  add(socket: Socket): void {
    let bytes: Buffer = Buffer.alloc(0)
    let stopTimer: (() => void) | undefined
    const onData = (chunk: Buffer) => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
      const framing = detectProtocol(bytes)
      if (framing === 'need-more') {
        stopTimer ??= this.#options.startTimer(this.#options.headerMs, () => this.#refuse(socket, 'stuck'))
      } else if (framing === 'invalid') {
        this.#refuse(socket, 'speaks neither HTTP/2 nor ttRPC')
      } else {
        release()
        this.#options.detected({ socket, framing, firstBytes: bytes })
      }
    }
    const close = () => this.#refuse(socket, 'left')
    const release = () => {
      stopTimer?.()
      socket.off('data', onData).off('end', close).off('close', release)
      this.#waiting.delete(socket)
    }
    socket.on('data', onData).on('end', close).on('close', release)
    this.#waiting.set(socket, release)
    if (this.#waiting.size > this.#options.limit) this.#refuseOldest()
  }

  /** Closes all that wait. */
  close(): void {
    for (const socket of [...this.#waiting.keys()]) this.#refuse(socket, 'the agent is stopping')
  }

  #refuseOldest(): void {
    for (const socket of this.#waiting.keys()) {
      this.#refuse(socket, 'the oldest of too many')
      return
    }
  }

  #refuse(socket: Socket, reason: string): void {
    this.#waiting.get(socket)?.()
    this.#options.refused(socket, reason)
    socket.destroy()
  }
}
