import { checkErrno } from '../../../src/os/errors.ts'
import type { Native, ReceivedMessage } from '../../../src/os/native.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { Inbox } from './inbox.ts'

const MAX_BYTES = 65_536
const EAGAIN = 11

export class MessageSocket {
  readonly inbox = new Inbox<ReceivedMessage>('messages of the broker')
  readonly #native: Native
  readonly #fd: Fd
  #watch: number | undefined
  #isClosed = false

  constructor(native: Native, fd: Fd) {
    this.#native = native
    this.#fd = fd
    native.setNonBlocking(fd, true)
    this.#waitForMessages()
  }

  /** Throws when the other end is closed or its buffer is full. */
  send(data: Buffer, passed?: Fd): void {
    checkErrno('send to', 'the broker', this.#native.sendMessage(this.#fd, data, passed))
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    if (this.#watch !== undefined) this.#native.cancelWatch(this.#fd, this.#watch)
    this.#native.close(this.#fd)
    this.inbox.end()
  }

  #waitForMessages(): void {
    this.#watch = this.#native.watchFd(this.#fd, 'read', () => {
      this.#watch = undefined
      if (this.#receive()) this.#waitForMessages()
    })
  }

  #receive(): boolean {
    for (;;) {
      const message = this.#native.recvMessage(this.#fd, MAX_BYTES)
      if (message === -EAGAIN) return true
      if (typeof message === 'number' || message.data.length === 0) {
        this.inbox.end()
        return false
      }
      this.inbox.push(message)
    }
  }
}
