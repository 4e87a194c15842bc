import { setImmediate as turn } from 'node:timers/promises'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import { checkErrno, errnoName, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { parseUevent, type Uevent } from './uevent.ts'

/** The kernel's events about devices (netlink KOBJECT_UEVENT, group 1). */
export interface Uevents {
  /** Passes every later event of the kernel in order, until `close`. Throws when the socket cannot be opened. */
  listen(listener: UeventListener): { close(): void }
  /** Received events, and failures to receive, after which events may be lost. */
  counts(): UeventCounts
}

export interface UeventCounts {
  readonly received: number
  readonly failures: number
}

export interface UeventListener {
  event(event: Uevent): void
  /** Events may be lost. Listening continues; `error` is called again once a new socket is open. */
  error(error: AgentError): void
}

/** Room for the events of thousands of cold-plugged devices while the loop is busy. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

/** Pauses before a failed socket is replaced, doubled each time until a socket has received something. */
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 10_000

const END = '\0\0'

export interface UeventContext {
  readonly native: Pick<Native, 'ueventListen' | 'ueventReceive'>
  readonly streams: Pick<Streams, 'readable' | 'close'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  readonly receiveBufferBytes?: number
}

/** All listeners share one feed, which is open as long as there is a listener. */
export function linuxUevents(context: UeventContext): Uevents {
  let open: Feed | undefined
  const counts = { received: 0, failures: 0 }
  return {
    counts: () => ({ ...counts }),
    listen(listener) {
      open ??= new Feed(context, counts)
      const feed = open
      const remove = feed.add(listener)
      return {
        close() {
          if (remove() > 0) return
          if (open === feed) open = undefined
          feed.close()
        },
      }
    },
  }
}

interface Listening {
  readonly listener: UeventListener
  isRemoved: boolean
}

class Feed {
  readonly #context: UeventContext
  readonly #counts: { received: number; failures: number }
  /** Replaced on every change, because a listener may add or remove listeners. */
  #listeners: readonly Listening[] = []
  readonly #closing = new AbortController()
  #isClosed = false
  #fd: Fd | undefined
  #pauseMs = FIRST_PAUSE_MS

  constructor(context: UeventContext, counts: { received: number; failures: number }) {
    this.#context = context
    this.#counts = counts
    this.#fd = this.#openSocket()
    void this.#follow(this.#fd)
  }

  /** The returned function removes the listener and returns how many are left. */
  add(listener: UeventListener): () => number {
    // The same object may be added twice.
    const own: Listening = { listener, isRemoved: false }
    this.#listeners = [...this.#listeners, own]
    return () => {
      own.isRemoved = true
      this.#listeners = this.#listeners.filter((each) => each !== own)
      return this.#listeners.length
    }
  }

  close(): void {
    this.#isClosed = true
    this.#closing.abort()
    this.#closeSocket()
  }

  #openSocket(): Fd {
    const { native, receiveBufferBytes = RECEIVE_BUFFER_BYTES } = this.#context
    return checkErrno('listen to', 'uevents', native.ueventListen(receiveBufferBytes))
  }

  /** Never rejects. */
  async #follow(first: Fd): Promise<void> {
    for (let fd: Fd | undefined = first; fd !== undefined; ) {
      const failure = await this.#receiveAll(fd)
      if (failure === undefined || this.#isClosed) return
      this.#closeSocket()
      this.#failed(failure)
      fd = await this.#reopen()
      this.#fd = fd
      // A listener that looks at sysfs now misses nothing, because events are received already.
      if (fd !== undefined) this.#tellAll((listener) => listener.error(failure))
    }
  }

  /** A pending wait for the socket rejects. */
  #closeSocket(): void {
    if (this.#fd !== undefined) this.#context.streams.close(this.#fd)
    this.#fd = undefined
  }

  /** Returns the socket's failure; undefined once the feed is closed. */
  async #receiveAll(fd: Fd): Promise<AgentError | undefined> {
    try {
      while (!this.#isClosed) {
        await this.#context.streams.readable(fd)
        // Work for these events starts before the next ones are read, because many devices cause hundreds.
        while (this.#receive(fd)) await turn()
      }
      return undefined
    } catch (error) {
      return error instanceof AgentError
        ? error
        : new AgentError('INTERNAL', messageOf(error), { cause: error })
    }
  }

  #receive(fd: Fd): boolean {
    if (this.#isClosed) return false
    const received = this.#context.native.ueventReceive(fd)
    if (typeof received === 'string') {
      this.#pauseMs = FIRST_PAUSE_MS
      for (const text of received.split(END)) this.#tellEvent(text)
      return true
    }
    const errno = errnoName(-received)
    if (errno === 'EAGAIN') return false
    const error = kernelError('receive', 'uevents', errno)
    if (errno !== 'ENOBUFS') throw error
    this.#counts.failures += 1
    this.#tellAll((listener) => listener.error(error))
    return true
  }

  #tellEvent(text: string): void {
    // A listener may have closed the feed.
    if (this.#isClosed) return
    // Parsed once, because each of many devices may have its own listener.
    const event = parseUevent(text)
    if (event === undefined) return
    this.#counts.received += 1
    this.#tellAll((listener) => listener.event(event))
  }

  /** Retries until a new socket is open; undefined once the feed is closed. */
  async #reopen(): Promise<Fd | undefined> {
    const { clock, log } = this.#context
    for (;;) {
      const pauseMs = this.#pauseMs
      this.#pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)
      try {
        await clock.sleep(pauseMs, this.#closing.signal)
        if (this.#isClosed) return undefined
        const fd = this.#openSocket()
        log.info('listening to uevents again')
        return fd
      } catch (error) {
        if (this.#isClosed) return undefined
        log.warn('uevents: cannot open a socket', { error: messageOf(error) })
      }
    }
  }

  #failed(failure: AgentError): void {
    this.#counts.failures += 1
    this.#context.log.warn('uevents: socket failed, opening a new one', { error: failure.message })
    this.#tellAll((listener) => listener.error(failure))
  }

  #tellAll(tell: (listener: UeventListener) => void): void {
    for (const { listener, isRemoved } of this.#listeners) if (!isRemoved) tell(listener)
  }
}
