import type { Socket } from 'node:net'
import { type DetectedProtocol, detectProtocol } from '../../rpc/protocol-detection.ts'
import type { StartTimer } from '../../rpc/timer.ts'

/** A connection whose framing is known. */
export interface DetectedConnection {
  readonly socket: Socket
  readonly framing: Exclude<DetectedProtocol, 'need-more' | 'invalid'>
  /** All bytes that have been read from it. */
  readonly firstBytes: Buffer
}

/** The limits of {@link ProtocolDetection}, and its callbacks. */
export interface ProtocolDetectionOptions {
  /** How long a connection may take from its first byte until its framing is known, in milliseconds. */
  readonly headerMs: number
  readonly startTimer: StartTimer
  /** Called with each connection whose framing is known. */
  readonly detected: (connection: DetectedConnection) => void
  /** Closes a connection of unknown framing. */
  readonly refused: (socket: Socket, reason: string) => void
}

/**
 * Protocol detection: holds connections until their first bytes tell the framing. A connection that has sent nothing stays
 * open and costs only a descriptor. One whose framing is invalid, or that stops within its first bytes, is closed.
 */
export class ProtocolDetection {
  readonly #options: ProtocolDetectionOptions
  /** Each function releases its socket without closing it. */
  readonly #waiting = new Map<Socket, () => void>()

  constructor(options: ProtocolDetectionOptions) {
    this.#options = options
  }

  /** Adds an accepted socket from which nothing was read. */
  add(socket: Socket): void {
    let bytes: Buffer = Buffer.alloc(0)
    let stopTimer: (() => void) | undefined
    const onData = (chunk: Buffer) => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
      const framing = detectProtocol(bytes)
      if (framing === 'need-more') {
        stopTimer ??= this.#options.startTimer(this.#options.headerMs, () =>
          this.#close(socket, 'incomplete first bytes'),
        )
      } else if (framing === 'invalid') {
        this.#close(socket, 'neither HTTP/2 nor ttRPC')
      } else {
        release()
        this.#options.detected({ socket, framing, firstBytes: bytes })
      }
    }
    const close = () => this.#close(socket, 'peer closed it')
    const release = () => {
      stopTimer?.()
      socket.off('data', onData).off('end', close).off('close', release)
      this.#waiting.delete(socket)
    }
    socket.on('data', onData).on('end', close).on('close', release)
    this.#waiting.set(socket, release)
  }

  /** Closes all waiting connections. */
  close(): void {
    for (const socket of [...this.#waiting.keys()]) this.#close(socket, 'the agent is stopping')
  }

  #close(socket: Socket, reason: string): void {
    this.#waiting.get(socket)?.()
    this.#options.refused(socket, reason)
  }
}
