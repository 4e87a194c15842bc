import { AgentError, messageOf } from '../base/errors.ts'
import { errnoName, kernelError, succeeded } from './errors.ts'
import type { Native } from './native.ts'
import type { Fd, Streams, UeventListener, Uevents } from './os.ts'

/** Room for what a cold-plug of thousands of devices sends while the loop is busy. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

/** One socket of events, from its opening until its close or a failure. */
interface Feed {
  readonly listeners: Set<UeventListener>
  readonly closing: AbortController
}

/** The kernel's uevents by netlink: one socket for all who listen, open as long as anybody does. */
export function linuxUevents(
  native: Native,
  streams: Streams,
  receiveBufferBytes = RECEIVE_BUFFER_BYTES,
): Uevents {
  let open: Feed | undefined

  function openFeed(): Feed {
    const fd = succeeded('listen to', 'uevents', native.ueventListen(receiveBufferBytes))
    const feed: Feed = { listeners: new Set(), closing: new AbortController() }
    receiveAll(native, streams, fd, feed)
      .catch((error) => {
        if (open === feed) open = undefined
        if (!feed.closing.signal.aborted) tellAll(feed, (listener) => listener.error(asAgentError(error)))
      })
      .finally(() => streams.close(fd))
    return feed
  }

  return {
    listen(listener) {
      open ??= openFeed()
      const feed = open
      // The same object may listen twice.
      const own: UeventListener = {
        event: (datagram) => listener.event(datagram),
        error: (error) => listener.error(error),
      }
      feed.listeners.add(own)
      return {
        close() {
          feed.listeners.delete(own)
          if (feed.listeners.size > 0) return
          if (open === feed) open = undefined
          feed.closing.abort()
        },
      }
    },
  }
}

async function receiveAll(native: Native, streams: Streams, fd: Fd, feed: Feed): Promise<never> {
  for (;;) {
    await streams.readable(fd, feed.closing.signal)
    const received = native.ueventReceive(fd)
    if (received === undefined) continue
    if (typeof received !== 'number') {
      tellAll(feed, (listener) => listener.event(received))
      continue
    }
    const errno = errnoName(-received)
    if (errno === 'EAGAIN') continue
    const error = kernelError('receive', 'uevents', errno)
    if (errno !== 'ENOBUFS') throw error
    tellAll(feed, (listener) => listener.error(error))
  }
}

/** Those who listen now: telling one may make it stop, or make another one begin. */
function tellAll({ listeners }: Feed, tell: (listener: UeventListener) => void): void {
  for (const listener of [...listeners]) if (listeners.has(listener)) tell(listener)
}

function asAgentError(error: unknown): AgentError {
  return error instanceof AgentError ? error : new AgentError('INTERNAL', messageOf(error), { cause: error })
}
