import { readFile } from 'node:fs/promises'
import { errnoOf } from '../../base/errors.ts'

/**
 * When the process that has `pid` now was started, in nanoseconds of CLOCK_BOOTTIME (10 ms precise); undefined
 * when there is none.
 */
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

/** Field 22 of /proc/PID/stat (proc(5)), counted from the last `)`: the name before it may contain anything. */
export function parseStartNs(stat: string): bigint {
  const afterName = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return BigInt(afterName[19] ?? 0) * NS_PER_TICK
}

/** USER_HZ is 100 on every architecture this runs on. */
const NS_PER_TICK = 10_000_000n
