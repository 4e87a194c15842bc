import type { Os } from '../os.ts'
import { killIfAlive } from './kill-if-alive.ts'
import { isEnding, procStatFields } from './proc-stat.ts'

/** Between two looks at the processes: killed ones take a moment to end. */
const BETWEEN_LOOKS_MS = 10
const LOOKS = 100

/** Counted from the state, which comes after the name of the program (proc(5)). */
const FIELD_OF_SESSION = 3

/**
 * Kills every process of a session, by looking until there is none that is not ending: one may fork before it is killed.
 * Resolves with the pids of those that still are after a second, which the kernel holds.
 */
export async function killSession(
  os: Pick<Os, 'files' | 'system' | 'clock'>,
  session: number,
): Promise<readonly number[]> {
  for (let look = 1; ; look++) {
    const members = await membersOf(os, session)
    if (members.length === 0 || look === LOOKS) return members
    for (const pid of members) killIfAlive(os, pid)
    await os.clock.sleep(BETWEEN_LOOKS_MS)
  }
}

async function membersOf({ files }: Pick<Os, 'files'>, session: number): Promise<number[]> {
  const pids: string[] = []
  for await (const name of files.names('/proc')) if (/^\d+$/.test(name)) pids.push(name)
  const stats = await files.readSmall(pids.map((pid) => `/proc/${pid}/stat`))
  return pids.flatMap((pid, index) => {
    const stat = stats[index] ?? ''
    if (stat === '' || isEnding(stat)) return []
    return Number(procStatFields(stat)[FIELD_OF_SESSION]) === session ? [Number(pid)] : []
  })
}
