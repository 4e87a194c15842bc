import { setImmediate as turn } from 'node:timers/promises'
import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Streams } from '../streams/streams.ts'

/** A message of the kernel itself: root in a container may write to /dev/kmsg, but not as the kernel. */
export interface KernelLine {
  readonly sequence: bigint
  /** By CLOCK_MONOTONIC, but for what that clock is adjusted by. */
  readonly timeUs: bigint
  readonly text: string
}

export interface KernelLog {
  /** Passes the kernel's messages, from the oldest one it has or from now on. Ends with the process. Never throws. */
  follow(fromStart: boolean, line: (line: KernelLine) => void): void
}

/** More than the kernel puts in a record. */
const RECORD_BYTES = 16 * 1024

/** Records that are read before other events are handled. */
const RECORDS_AT_ONCE = 64

export function linuxKernelLog(parts: {
  readonly native: Pick<Native, 'openKernelLog'>
  readonly streams: Pick<Streams, 'readable' | 'tryRead'>
  readonly log: Logger
}): KernelLog {
  const { native, streams, log } = parts
  const follow = async (fromStart: boolean, tell: (line: KernelLine) => void) => {
    const fd = checkErrno('open', '/dev/kmsg', native.openKernelLog(fromStart))
    for (let read = 1; ; read++) {
      const record = nextRecord(streams, fd)
      if (record === undefined) await streams.readable(fd)
      const line = record === undefined ? undefined : parseRecord(record)
      if (line !== undefined) tell(line)
      if (read % RECORDS_AT_ONCE === 0) await turn()
    }
  }
  return {
    follow: (fromStart, tell) =>
      void follow(fromStart, tell).catch((error) =>
        log.info("the kernel's log is not followed", { error: messageOf(error) }),
      ),
  }
}

/** Undefined when there is none. EPIPE says that the next one was overwritten: the one after it follows. */
function nextRecord(streams: Pick<Streams, 'tryRead'>, fd: number): string | undefined {
  for (;;) {
    try {
      return streams.tryRead(fd, RECORD_BYTES)?.toString('utf8')
    } catch (error) {
      if (errnoOf(error) !== 'EPIPE') throw error
    }
  }
}

/** `PRIORITY,SEQUENCE,TIME,FLAGS;TEXT` (Documentation/ABI/testing/dev-kmsg). Undefined unless its facility is the kernel. */
export function parseRecord(record: string): KernelLine | undefined {
  const [, priority, sequence, time, text] = /^(\d+),(\d+),(\d+),[^;]*;([^\n]*)/.exec(record) ?? []
  if (priority === undefined || sequence === undefined || time === undefined || text === undefined)
    return undefined
  return Number(priority) < 8 ? { sequence: BigInt(sequence), timeUs: BigInt(time), text } : undefined
}
