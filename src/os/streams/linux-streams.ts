import { checkErrno, errnoName, kernelError, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import { Readiness } from './readiness.ts'
import type { Fd, RelayResult, Streams } from './streams.ts'

/** {@link Streams} by the addon's watches and its single reads and writes. */
export function linuxStreams(native: Native): Streams {
  const readiness = new Readiness(native)
  return {
    pipe: (direction, sizeBytes = 0) => openPipe(native, direction, sizeBytes),
    close(fd) {
      readiness.abandon(fd)
      checkErrno('close', `fd ${fd}`, native.close(fd))
    },
    duplicate: (fd) => checkErrno('duplicate', `fd ${fd}`, native.duplicate(fd)),
    // The pipe's writer may have enlarged it already.
    growPipe: (fd, sizeBytes) =>
      native.pipeSize(fd) >= sizeBytes || native.setPipeSize(fd, sizeBytes) >= sizeBytes,
    readable: (fd, signal) => readiness.wait(fd, 'read', signal),
    writable: (fd, signal) => readiness.wait(fd, 'write', signal),
    tryRead: (fd, maxBytes) => tryRead(native, fd, maxBytes),
    tryWrite: (fd, data) => tryWrite(native, fd, data),
    setWindowSize(fd, rows, columns) {
      checkErrno('set the window size of', `fd ${fd}`, native.setWindowSize(fd, rows, columns))
    },
    relay(source, target, signal, drain) {
      signal?.throwIfAborted()
      readiness.abandon(source)
      readiness.abandon(target)
      return relay({ native, source, target, signal, drain })
    },
  }
}

function openPipe(
  native: Native,
  direction: 'child-writes' | 'child-reads',
  sizeBytes: number,
): { parentEnd: Fd; childEnd: Fd } {
  const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
  const [parentEnd, childEnd] = direction === 'child-writes' ? [reading, writing] : [writing, reading]
  try {
    if (sizeBytes > 0)
      checkErrno('size', `a pipe of ${sizeBytes} bytes`, native.setPipeSize(parentEnd, sizeBytes))
    checkErrno('unblock', `fd ${parentEnd}`, native.setNonBlocking(parentEnd, true))
  } catch (error) {
    native.close(parentEnd)
    native.close(childEnd)
    throw error
  }
  return { parentEnd, childEnd }
}

/** One read. A pty's master answers EIO when nothing has its other side open any more, which is EOF here. */
function tryRead(native: Native, fd: Fd, maxBytes: number): Buffer | undefined {
  const result = native.read(fd, maxBytes)
  if (typeof result !== 'number') return result
  const errno = errnoName(-result)
  if (errno === 'EAGAIN') return undefined
  if (errno === 'EIO') return Buffer.alloc(0)
  throw kernelError('read', `fd ${fd}`, errno)
}

function tryWrite(native: Native, fd: Fd, data: Uint8Array): number {
  const result = native.write(fd, data)
  if (result < 0 && errnoName(-result) === 'EAGAIN') return 0
  return checkErrno('write', `fd ${fd}`, result)
}

function relay(request: {
  readonly native: Native
  readonly source: Fd
  readonly target: Fd
  readonly signal: AbortSignal | undefined
  readonly drain: AbortSignal | undefined
}): Promise<RelayResult> {
  const { native, source, target, signal, drain } = request
  const ended = Promise.withResolvers<RelayResult>()
  const number = native.relayStart(source, target, (bytes, errno) => {
    signal?.removeEventListener('abort', onStop)
    drain?.removeEventListener('abort', onDrain)
    ended.resolve({ bytes, errno: errno === 0 ? undefined : errnoName(errno) })
  })
  checkErrno('relay', `fd ${source} to fd ${target}`, number)
  const onStop = () => native.relayStop(number)
  const onDrain = () => native.relayDrain(number)
  signal?.addEventListener('abort', onStop, { once: true })
  drain?.addEventListener('abort', onDrain, { once: true })
  if (drain?.aborted) onDrain()
  return ended.promise
}
