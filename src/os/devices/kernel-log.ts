import { setImmediate as turn } from 'node:timers/promises'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { checkErrno, errnoName, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'

/** A message of the kernel itself: root in a container may write to /dev/kmsg, but not as the kernel. */
export interface KernelLine {
  readonly sequence: bigint
  readonly text: string
}

export interface KernelLog {
  /**
   * Passes the kernel's messages since `fromUs` of CLOCK_MONOTONIC, but for what that clock is adjusted by, or those from
   * now on. Ends with the process. Never throws.
   */
  follow(fromUs: bigint | undefined, line: (line: KernelLine) => void): void
}

/** Records that are read before other events are handled. */
const RECORDS_AT_ONCE = 64

export function linuxKernelLog(parts: {
  readonly native: Pick<Native, 'openKernelLog' | 'readKernelLog'>
  readonly streams: Pick<Streams, 'readable'>
  readonly log: Logger
}): KernelLog {
  const { native, streams, log } = parts
  const follow = async (fromUs: bigint | undefined, tell: (line: KernelLine) => void) => {
    const fd = checkErrno('open', '/dev/kmsg', native.openKernelLog(fromUs !== undefined))
    for (let read = 1; ; read++) {
      const record = native.readKernelLog(fd, Number(fromUs ?? 0n))
      if (typeof record === 'number') await afterNone(record, fd)
      const line = typeof record === 'number' ? undefined : parseRecord(record.toString('utf8'))
      if (line !== undefined) tell(line)
      if (read % RECORDS_AT_ONCE === 0) await turn()
    }
  }
  const afterNone = async (result: number, fd: Fd) => {
    if (result === 0) await turn()
    else if (errnoName(-result) === 'EAGAIN') await streams.readable(fd)
    else throw kernelError('read', '/dev/kmsg', errnoName(-result))
  }
  return {
    follow: (fromUs, tell) =>
      void follow(fromUs, tell).catch((error) =>
        log.info("the kernel's log is not followed", { error: messageOf(error) }),
      ),
  }
}

/** `PRIORITY,SEQUENCE,TIME,FLAGS;TEXT` (Documentation/ABI/testing/dev-kmsg). Undefined unless its facility is the kernel. */
export function parseRecord(record: string): KernelLine | undefined {
  const [, priority, sequence, text] = /^(\d+),(\d+),\d+,[^;]*;([^\n]*)/.exec(record) ?? []
  if (priority === undefined || sequence === undefined || text === undefined) return undefined
  return Number(priority) < 8 ? { sequence: BigInt(sequence), text } : undefined
}
