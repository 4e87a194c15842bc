import { readFile } from 'node:fs/promises'
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

/** The texts of /proc/PID/stat by pid. A process that ends meanwhile is left out. */
export async function processStats(
  files: Pick<Files, 'names' | 'readSmall'>,
): Promise<ReadonlyMap<number, string>> {
  const pids: number[] = []
  for await (const name of files.names('/proc')) if (/^\d+$/.test(name)) pids.push(Number(name))
  const stats = await files.readSmall(pids.map((pid) => `/proc/${pid}/stat`))
  return new Map(
    pids.map((pid, index) => [pid, stats[index] ?? ''] as const).filter(([, stat]) => stat !== ''),
  )
}

export async function childrenOf(
  files: Pick<Files, 'names' | 'readSmall'>,
  parent: string | undefined,
): Promise<readonly number[]> {
  const stats = await processStats(files)
  return [...stats].flatMap(([pid, stat]) => (procStatFields(stat)[1] === parent ? [pid] : []))
}

/** undefined when the process has ended. `self` is this process. */
export async function parentPid(files: Files, pid: string): Promise<string | undefined> {
  const stat = await files.readText(`/proc/${pid}/stat`).catch(() => '')
  return procStatFields(stat)[1]
}

/** The start of the process with `pid` in CLOCK_BOOTTIME, precise to 10 ms; undefined when there is none. */
export async function processStartNs(pid: number): Promise<bigint | undefined> {
  try {
    return parseStartNs(await readFile(`/proc/${pid}/stat`, 'utf8'))
  } catch (error) {
    const errno = errnoOf(error)
    // ESRCH: it ended between open and read.
    if (errno === 'ENOENT' || errno === 'ESRCH') return undefined
    throw error
  }
}

/** The same; `earliestNs` when the process has ended. */
export async function processBeganNs(
  { files }: { readonly files: Files },
  pid: number,
  earliestNs: bigint,
): Promise<bigint> {
  const stat = await files.readText(`/proc/${pid}/stat`).catch(() => '')
  return stat === '' ? earliestNs : parseStartNs(stat)
}

const NS_PER_TICK = 1_000_000_000n / BigInt(TICKS_PER_SECOND)

/** `starttime`, field 22. */
export function parseStartNs(stat: string): bigint {
  return BigInt(procStatFields(stat)[19] ?? 0) * NS_PER_TICK
}
