import { setImmediate as turn } from 'node:timers/promises'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import { checkErrno, errnoName, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import type { Uevent } from './uevent.ts'
import { parseUevent } from './uevent.ts'

/** The kernel's events about devices that come and go (netlink KOBJECT_UEVENT, group 1). */
export interface Uevents {
  /**
   * Listens from now on: every event sent after the return is handed over, in its order. Datagrams of
   * other senders than the kernel, and what is no event, are dropped. Whoever listens closes.
   */
  listen(listener: UeventListener): { close(): void }
}

export interface UeventListener {
  event(event: Uevent): void
  /** Receiving failed, so that events may have been lost. Listening goes on, if need be by a new socket, which is told again. */
  error(error: AgentError): void
}

/** Room for what a cold-plug of thousands of devices sends while the loop is busy. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

/** Pauses before a socket that failed is opened anew: doubled each time until one has received something. */
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 10_000

/** What is behind each event. */
const END = '\0\0'

/** What listening takes. */
export interface UeventParts {
  readonly native: Pick<Native, 'ueventListen' | 'ueventReceive'>
  readonly streams: Pick<Streams, 'readable' | 'close'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  readonly receiveBufferBytes?: number
}

/** The kernel's uevents by netlink: one feed for all who listen, open as long as anybody does. */
export function linuxUevents(parts: UeventParts): Uevents {
  let open: Feed | undefined
  return {
    listen(listener) {
      open ??= new Feed(parts)
      const feed = open
      const leave = feed.add(listener)
      return {
        close() {
          if (leave() > 0) return
          if (open === feed) open = undefined
          feed.close()
        },
      }
    },
  }
}

interface Listening {
  readonly listener: UeventListener
  hasLeft: boolean
}

/** Events from now until the close. A socket that fails is followed by another one. */
class Feed {
  readonly #parts: UeventParts
  /** Replaced when somebody comes or leaves: telling one may make it stop, or make another one begin. */
  #listeners: readonly Listening[] = []
  readonly #closing = new AbortController()
  #isClosed = false
  /** The socket, when there is one. */
  #fd: Fd | undefined
  #pauseMs = FIRST_PAUSE_MS

  /** Throws when the first socket cannot be had. */
  constructor(parts: UeventParts) {
    this.#parts = parts
    this.#fd = this.#openSocket()
    void this.#follow(this.#fd)
  }

  /** Returns how to leave, which tells how many are left. */
  add(listener: UeventListener): () => number {
    // The same object may listen twice.
    const own: Listening = { listener, hasLeft: false }
    this.#listeners = [...this.#listeners, own]
    return () => {
      own.hasLeft = true
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
    const { native, receiveBufferBytes = RECEIVE_BUFFER_BYTES } = this.#parts
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
      // Whoever looks again now misses nothing: events are received already.
      if (fd !== undefined) this.#tellAll((listener) => listener.error(failure))
    }
  }

  /** Whoever waits for the socket is told that it is none any more. */
  #closeSocket(): void {
    if (this.#fd !== undefined) this.#parts.streams.close(this.#fd)
    this.#fd = undefined
  }

  /** Why the socket ended; undefined once the feed is closed. */
  async #receiveAll(fd: Fd): Promise<AgentError | undefined> {
    try {
      while (!this.#isClosed) {
        await this.#parts.streams.readable(fd)
        // What events have brought about begins before the next are read: a crowd of devices makes hundreds.
        while (this.#receive(fd)) await turn()
      }
      return undefined
    } catch (error) {
      return error instanceof AgentError
        ? error
        : new AgentError('INTERNAL', messageOf(error), { cause: error })
    }
  }

  /** Tells the next events. Answers whether there may be more. */
  #receive(fd: Fd): boolean {
    if (this.#isClosed) return false
    const received = this.#parts.native.ueventReceive(fd)
    if (typeof received === 'string') {
      this.#pauseMs = FIRST_PAUSE_MS
      for (const text of received.split(END)) this.#tellEvent(text)
      return true
    }
    const errno = errnoName(-received)
    if (errno === 'EAGAIN') return false
    const error = kernelError('receive', 'uevents', errno)
    if (errno !== 'ENOBUFS') throw error
    this.#tellAll((listener) => listener.error(error))
    return true
  }

  #tellEvent(text: string): void {
    // Whoever is told an event may end the feed.
    if (this.#isClosed) return
    // Read once for all: of a crowd of devices each may have its own listener.
    const event = parseUevent(text)
    if (event !== undefined) this.#tellAll((listener) => listener.event(event))
  }

  /** Tries until there is a socket again; undefined when nobody listens any more. */
  async #reopen(): Promise<Fd | undefined> {
    const { clock, log } = this.#parts
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
        log.warn('uevents cannot be listened to', { error: messageOf(error) })
      }
    }
  }

  #failed(failure: AgentError): void {
    this.#parts.log.warn('uevents ended, to be listened to anew', { error: failure.message })
    this.#tellAll((listener) => listener.error(failure))
  }

  /** Those who listen now. */
  #tellAll(tell: (listener: UeventListener) => void): void {
    for (const { listener, hasLeft } of this.#listeners) if (!hasLeft) tell(listener)
  }
}
