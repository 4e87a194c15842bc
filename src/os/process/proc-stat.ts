import { errnoOf } from '../../base/errors.ts'
import type { Files } from '../files/files.ts'

/** USER_HZ, the ticks per second in /proc: 100 on every supported architecture. */
export const TICKS_PER_SECOND = 100

/** The fields of /proc/PID/stat from `state` on (field 3 of proc(5)). The name before it may contain a `)`. */
export function procStatFields(stat: string): readonly string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
}

/** PF_EXITING of `flags`, field 9: the process has begun to end. A zombie has it too. */
const EXITING = 0x4

export function isEnding(stat: string): boolean {
  return (Number(procStatFields(stat)[6]) & EXITING) !== 0
}

/** The pids of processes whose /proc/PID/stat is wanted. */
export async function pidsWhere(files: Files, isWanted: (stat: string) => boolean): Promise<number[]> {
  const pids: number[] = []
  for await (const name of files.names('/proc')) if (/^\d+$/.test(name)) pids.push(Number(name))
  const stats = await files.readSmall(pids.map((pid) => `/proc/${pid}/stat`))
  return pids.filter((_, index) => stats[index] !== '' && isWanted(stats[index] ?? ''))
}

/** undefined when the process has ended. `self` is this process. */
export async function parentPid(files: Files, pid: string): Promise<string | undefined> {
  const stat = await files.readText(`/proc/${pid}/stat`).catch(() => '')
  return procStatFields(stat)[1]
}

/** The start of the process with `pid` in CLOCK_BOOTTIME, precise to 10 ms; undefined when there is none. */
export async function processStartNs(files: Files, pid: number): Promise<bigint | undefined> {
  try {
    return parseStartNs(await files.readText(`/proc/${pid}/stat`))
  } catch (error) {
    const errno = errnoOf(error)
    // ESRCH: it ended between open and read.
    if (errno === 'ENOENT' || errno === 'ESRCH') return undefined
    throw error
  }
}

const NS_PER_TICK = 1_000_000_000n / BigInt(TICKS_PER_SECOND)

/** `starttime`, field 22. */
export function parseStartNs(stat: string): bigint {
  return BigInt(procStatFields(stat)[19] ?? 0) * NS_PER_TICK
}
