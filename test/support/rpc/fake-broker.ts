import { setImmediate } from 'node:timers/promises'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native, ReceivedMessage } from '../../../src/os/native.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { BrokerMessageKind } from '../../../src/os/supervisor/broker-messages.ts'

export interface FromAgent {
  readonly kind: number
  readonly flags: number
  readonly a: bigint
  readonly b: bigint
  readonly payload: Buffer
  readonly fds: readonly Fd[]
}

/** The broker's end of the control socket, played by the test. */
export class FakeBroker {
  readonly agentFd: Fd
  readonly #native: Native
  readonly #fd: Fd
  #isClosed = false

  constructor(native: Native) {
    this.#native = native
    ;[this.#fd, this.agentFd] = unwrap('open', 'a message pair', native.messagePair())
    native.setNonBlocking(this.#fd, true)
  }

  send(kind: number, { flags = 0, a = 0n, b = 0n }, payload = Buffer.alloc(0), passed?: Fd): void {
    const message = Buffer.alloc(24 + payload.length)
    message.writeUInt32LE(kind, 0)
    message.writeUInt32LE(flags, 4)
    message.writeBigUInt64LE(a, 8)
    message.writeBigUInt64LE(b, 16)
    payload.copy(message, 24)
    this.sendBytes(message, passed)
  }

  sendBytes(message: Buffer, passed?: Fd): void {
    this.#native.sendMessage(this.#fd, message, passed)
    if (passed !== undefined) this.#native.close(passed)
  }

  /** Sends a connection. Returns the broker's end of its data socket, or the client's end of a gRPC connection. */
  connect(id: bigint, firstBytes?: Buffer, peer: readonly number[] = [0, 0, 0, 0]): Fd {
    const [mine, passed] = unwrap('open', 'a socket pair', this.#native.socketPair())
    const numbers = Buffer.alloc(20)
    for (const [index, number] of [...peer, firstBytes?.length ?? 0].entries()) {
      numbers.writeUInt32LE(number, 4 * index)
    }
    const payload = Buffer.concat([numbers, firstBytes ?? Buffer.alloc(0)])
    this.send(
      BrokerMessageKind.CONNECTION,
      { flags: firstBytes === undefined ? 0 : 1, a: id },
      payload,
      passed,
    )
    return mine
  }

  async next(): Promise<FromAgent> {
    for (;;) {
      const message = this.#native.recvMessage(this.#fd, 65_536)
      if (typeof message !== 'number') return parse(message)
      await setImmediate()
    }
  }

  close(): void {
    if (!this.#isClosed) this.#native.close(this.#fd)
    this.#isClosed = true
  }
}

function parse({ data, fds }: ReceivedMessage): FromAgent {
  return {
    kind: data.readUInt32LE(0),
    flags: data.readUInt32LE(4),
    a: data.readBigUInt64LE(8),
    b: data.readBigUInt64LE(16),
    payload: data.subarray(24),
    fds,
  }
}
