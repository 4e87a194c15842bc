import { constants } from 'node:fs'
import { checkErrno, errnoName, kernelError, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import { Readiness } from './readiness.ts'
import type { Fd, RelayOptions, RelayResult, RelayTail, Streams } from './streams.ts'

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
    peek: (fd, maxBytes) => peek(native, fd, maxBytes),
    tryWrite: (fd, data) => tryWrite(native, fd, data),
    memoryFile: (name) => checkErrno('make', `memory file ${name}`, native.memoryFile(name)),
    wholePipe: () => openWholePipe(native),
    pipedBytes: (fd) => checkErrno('count', `bytes of fd ${fd}`, native.readableBytes(fd)),
    move: (source, target, maxBytes) => move(native, source, target, maxBytes),
    readAt: (fd, offset, maxBytes) => unwrap('read', `fd ${fd}`, native.readAt(fd, offset, maxBytes)),
    writeAt: (fd, offset, data) => writeAt(native, fd, offset, data),
    position: (fd) => checkErrno('seek', `fd ${fd}`, native.positionOf(fd)),
    setPosition(fd, offset) {
      checkErrno('seek', `fd ${fd}`, native.setPosition(fd, offset))
    },
    truncate(fd, sizeBytes) {
      checkErrno('truncate', `fd ${fd}`, native.truncate(fd, sizeBytes))
    },
    punchHole(fd, offset, bytes) {
      checkErrno('punch a hole in', `fd ${fd}`, native.punchHole(fd, offset, bytes))
    },
    setWindowSize(fd, rows, columns) {
      checkErrno('set the window size of', `fd ${fd}`, native.setWindowSize(fd, rows, columns))
    },
    relay(source, target, options = {}) {
      options.signal?.throwIfAborted()
      for (const fd of [source, target]) if (fd !== undefined) readiness.abandon(fd)
      return relay(native, source, target, options)
    },
    relayedBytes: () => native.relayedBytes(),
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

/** A pty's master answers EIO when no process has its other side open, which is EOF here. */
function tryRead(native: Native, fd: Fd, maxBytes: number): Buffer | undefined {
  const result = native.read(fd, maxBytes)
  if (typeof result !== 'number') return result
  const errno = errnoName(-result)
  if (errno === 'EAGAIN') return undefined
  if (errno === 'EIO') return Buffer.alloc(0)
  throw kernelError('read', `fd ${fd}`, errno)
}

function peek(native: Native, fd: Fd, maxBytes: number): Buffer | undefined {
  const result = native.peek(fd, maxBytes)
  if (typeof result === 'number' && errnoName(-result) === 'EAGAIN') return undefined
  return unwrap('peek', `fd ${fd}`, result)
}

function tryWrite(native: Native, fd: Fd, data: Uint8Array): number {
  const result = native.write(fd, data)
  if (result < 0 && errnoName(-result) === 'EAGAIN') return 0
  return checkErrno('write', `fd ${fd}`, result)
}

/** /proc opens a pipe's other end too: one descriptor keeps the whole pipe. */
function openWholePipe(native: Native): Fd {
  const ends = unwrap('open', 'a pipe', native.pipe())
  try {
    return openAgain(native, ends[0], constants.O_RDWR | constants.O_NONBLOCK)
  } finally {
    for (const end of ends) native.close(end)
  }
}

function openAgain(native: Native, fd: Fd, flags: number): Fd {
  const path = `/proc/self/fd/${fd}`
  return checkErrno('open', path, native.openAt2(AT_FDCWD, path, { flags, mode: 0, resolve: 0 }))
}

function move(native: Native, source: Fd, target: Fd, maxBytes: number): number | undefined {
  const result = native.splice(source, target, maxBytes)
  if (result >= 0) return result
  const errno = errnoName(-result)
  if (errno === 'EAGAIN') return undefined
  // No process has the other side of the pty open.
  if (errno === 'EIO') return 0
  throw kernelError('splice', `fd ${source} to fd ${target}`, errno)
}

function writeAt(native: Native, fd: Fd, offset: number, data: Uint8Array): void {
  for (let done = 0; done < data.length; ) {
    done += checkErrno('write', `fd ${fd}`, native.writeAt(fd, offset + done, data.subarray(done)))
  }
}

/** The flags of `relayStart`. */
const [SHUTS_DOWN, OUTLIVES_DEVICE, RESUMES] = [1, 2, 4]

function relay(
  native: Native,
  source: Fd | undefined,
  target: Fd | undefined,
  options: RelayOptions,
): Promise<RelayResult> {
  const { signal, drain, keep, link } = options
  const ended = Promise.withResolvers<RelayResult>()
  const isPipe = source !== undefined && native.pipeSize(source) >= 0
  const through = options.through ?? (isPipe ? undefined : openWholePipe(native))
  let readTail = () => native.relayTail(number)
  const onEnd = (bytes: bigint, errno: number, tail: RelayTail | number) => {
    readTail = () => tail
    signal?.removeEventListener('abort', onStop)
    drain?.removeEventListener('abort', onDrain)
    ended.resolve({ bytes, errno: errno === 0 ? undefined : errnoName(errno) })
  }
  const number = native.relayStart(
    source ?? -1,
    target ?? -1,
    through ?? -1,
    (options.shutsDown ? SHUTS_DOWN : 0) +
      (link?.outlivesDevice ? OUTLIVES_DEVICE : 0) +
      (link?.resumes ? RESUMES : 0),
    keep?.bytes ?? 0,
    link?.totals.fd ?? -1,
    link?.totals.offset ?? 0,
    link?.kept?.pipe ?? -1,
    link?.kept?.sent ?? -1,
    onEnd,
    () => link?.detached(),
  )
  if (number < 0 && through !== undefined && options.through === undefined) native.close(through)
  checkErrno('relay', `fd ${source} to fd ${target}`, number)
  link?.started({
    detach: () => native.relayDetach(number),
    attach: (connection) => void native.relayAttach(number, connection),
  })
  keep?.started(() => unwrap('read', `the last bytes of relay ${number}`, readTail()))
  const onStop = () => native.relayStop(number)
  const onDrain = () => native.relayDrain(number)
  signal?.addEventListener('abort', onStop, { once: true })
  drain?.addEventListener('abort', onDrain, { once: true })
  if (drain?.aborted) onDrain()
  return ended.promise
}
