import { AgentError, messageOf } from '../base/errors.ts'
import { errnoName, kernelError, succeeded } from './errors.ts'
import type { Native } from './native.ts'
import type { Fd, Streams, UeventListener, Uevents } from './os.ts'

/** Room for what a cold-plug of thousands of devices sends while the loop is busy. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

/** The kernel's uevents by netlink. */
export function linuxUevents(native: Native, streams: Streams): Uevents {
  return {
    listen(listener) {
      const fd = succeeded('listen to', 'uevents', native.ueventListen(RECEIVE_BUFFER_BYTES))
      const closing = new AbortController()
      receiveAll({ native, streams, fd, listener, closed: closing.signal })
        .catch((error) => {
          if (!closing.signal.aborted) listener.error(asAgentError(error))
        })
        .finally(() => streams.close(fd))
      return { close: () => closing.abort() }
    },
  }
}

async function receiveAll(socket: {
  readonly native: Native
  readonly streams: Streams
  readonly fd: Fd
  readonly listener: UeventListener
  readonly closed: AbortSignal
}): Promise<never> {
  const { native, streams, fd, listener, closed } = socket
  for (;;) {
    await streams.readable(fd, closed)
    const received = native.ueventReceive(fd)
    if (received === undefined) continue
    if (typeof received !== 'number') {
      listener.event(received)
      continue
    }
    const errno = errnoName(-received)
    if (errno === 'EAGAIN') continue
    const error = kernelError('receive', 'uevents', errno)
    if (errno !== 'ENOBUFS') throw error
    listener.error(error)
  }
}

function asAgentError(error: unknown): AgentError {
  return error instanceof AgentError ? error : new AgentError('INTERNAL', messageOf(error), { cause: error })
}
