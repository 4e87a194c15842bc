import { constants } from 'node:os'
import type { AgentError } from '../../base/errors.ts'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'

interface Waiter {
  readonly sent: () => void
  readonly failed: (error: unknown) => void
}

/** Sends commands to vminit in the order of the calls. */
export class ChannelWriter {
  readonly #native: Pick<Native, 'sendFd'>
  readonly #streams: Pick<Streams, 'tryWrite' | 'writable'>
  readonly #fd: Fd
  #unsent: Buffer[] = []
  /** They wait until all is sent. */
  #waiters: Waiter[] = []
  #isToFlush = false
  #gone: AgentError | undefined

  /** `fd` is the channel, non-blocking. */
  constructor(native: Pick<Native, 'sendFd'>, streams: Pick<Streams, 'tryWrite' | 'writable'>, fd: Fd) {
    this.#native = native
    this.#streams = streams
    this.#fd = fd
  }

  /** Sends at once while the socket takes commands. Resolves when the command is in it. Rejects when vminit is gone. */
  send(command: Buffer): Promise<void> {
    this.#unsent.push(command)
    return new Promise((sent, failed) => {
      this.#waiters.push({ sent, failed })
      this.#flush()
    })
  }

  /**
   * Sends the commands of a moment by one write, because each write wakes vminit. Ignores a failure: vminit is gone, and
   * everything that it kept.
   */
  post(command: Buffer): void {
    this.#unsent.push(command)
    if (this.#isToFlush) return
    this.#isToFlush = true
    queueMicrotask(this.#goOn)
  }

  /**
   * Sends commands, each with its descriptor, before it returns. Throws INTERNAL `store <subject>: <ERRNO>`, or why vminit
   * is gone.
   */
  sendDescriptors(commands: Buffer, [first = -1, ...others]: readonly Fd[], subject: string): void {
    if (this.#gone !== undefined) throw this.#gone
    this.#flush()
    // The socket has room for thousands of commands, and takes a message with descriptors whole or not at all.
    const isFull = this.#unsent.length > 0
    const sent = isFull ? -constants.errno.EAGAIN : this.#native.sendFd(this.#fd, commands, first, ...others)
    checkErrno('store', subject, sent)
  }

  /** Rejects every command that was not sent, and all later ones: the channel's number may be another file's soon. */
  fail(error: AgentError): void {
    this.#gone = error
    this.#flush()
  }

  readonly #goOn = (): void => {
    this.#isToFlush = false
    this.#flush()
  }

  #flush(): void {
    if (this.#unsent.length === 0) return
    try {
      if (this.#gone !== undefined) throw this.#gone
      const all = Buffer.concat(this.#unsent)
      const rest = all.subarray(this.#streams.tryWrite(this.#fd, all))
      this.#unsent = rest.length === 0 ? [] : [rest]
      if (rest.length > 0) this.#flushLater()
      else for (const { sent } of this.#waiters.splice(0)) sent()
    } catch (error) {
      this.#unsent = []
      for (const { failed } of this.#waiters.splice(0)) failed(error)
    }
  }

  #flushLater(): void {
    if (this.#isToFlush) return
    this.#isToFlush = true
    // The wait rejects when the channel is closed, after fail().
    this.#streams.writable(this.#fd).then(this.#goOn, this.#goOn)
  }
}
