import type { Os } from '../os.ts'
import { killIfAlive } from './kill-if-alive.ts'
import { isEnding, pidsWhere, procStatFields } from './proc-stat.ts'

/** The pause between two looks, because killed processes take a moment to end. */
const BETWEEN_LOOKS_MS = 10
const LOOKS = 100

/** Counted from the state, after the program's name (proc(5)). */
const FIELD_OF_SESSION = 3

/** Looks again, because one may fork before it is killed. Resolves with the pids that are left after a second. */
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

function membersOf({ files }: Pick<Os, 'files'>, session: number): Promise<readonly number[]> {
  const isMember = (stat: string) => Number(procStatFields(stat)[FIELD_OF_SESSION]) === session
  return pidsWhere(files, (stat) => isMember(stat) && !isEnding(stat))
}
