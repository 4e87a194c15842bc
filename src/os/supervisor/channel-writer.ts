import { constants } from 'node:os'
import type { AgentError } from '../../base/errors.ts'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'

interface Unsent {
  rest: Buffer
  readonly sent: PromiseWithResolvers<void>
}

/** Sends commands to vminit in the order of the calls, at once while the socket takes them. */
export class ChannelWriter {
  readonly #native: Pick<Native, 'sendFd'>
  readonly #streams: Pick<Streams, 'tryWrite' | 'writable'>
  readonly #fd: Fd
  readonly #unsent: Unsent[] = []
  #isWaiting = false
  #gone: AgentError | undefined

  /** `fd` is the channel, non-blocking. */
  constructor(native: Pick<Native, 'sendFd'>, streams: Pick<Streams, 'tryWrite' | 'writable'>, fd: Fd) {
    this.#native = native
    this.#streams = streams
    this.#fd = fd
  }

  /** Resolves when the command is in the socket. Rejects when vminit is gone. */
  send(command: Buffer): Promise<void> {
    const sent = Promise.withResolvers<void>()
    this.#unsent.push({ rest: command, sent })
    this.#flush()
    return sent.promise
  }

  /** Ignores a failure: vminit is gone, and everything that it kept. */
  post(command: Buffer): void {
    this.send(command).catch(() => {})
  }

  /** Sends a command before it returns. Throws INTERNAL `store <subject>: <ERRNO>`, or why vminit is gone. */
  sendDescriptor(command: Buffer, passed: Fd, subject: string): void {
    if (this.#gone !== undefined) throw this.#gone
    this.#flush()
    // The socket has room for thousands of commands, and takes a record with a descriptor whole or not at all.
    const sent =
      this.#unsent.length > 0 ? -constants.errno.EAGAIN : this.#native.sendFd(this.#fd, command, passed)
    checkErrno('store', subject, sent)
  }

  /** Rejects every command that was not sent, and all later ones: the channel's number may be another file's soon. */
  fail(error: AgentError): void {
    this.#gone = error
    this.#flush()
  }

  #flush(): void {
    for (;;) {
      const [first] = this.#unsent
      if (first === undefined) return
      try {
        if (this.#gone !== undefined) throw this.#gone
        first.rest = first.rest.subarray(this.#streams.tryWrite(this.#fd, first.rest))
        if (first.rest.length > 0) {
          this.#flushLater()
          return
        }
        first.sent.resolve()
      } catch (error) {
        first.sent.reject(error)
      }
      this.#unsent.shift()
    }
  }

  #flushLater(): void {
    if (this.#isWaiting) return
    this.#isWaiting = true
    const goOn = () => {
      this.#isWaiting = false
      this.#flush()
    }
    // The wait rejects when the channel is closed, after fail().
    this.#streams.writable(this.#fd).then(goOn, goOn)
  }
}
