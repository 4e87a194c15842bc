import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid } from '../../os/process/proc-stat.ts'

/**
 * Kills what a runtime has added to a container and not told: those of its processes that are children of vminit, as
 * only what a runtime has made is, and that are not `known`. No process may have been in the making when `members`
 * were listed. Resolves when they are reaped.
 */
export async function killUntrackedProcesses(
  os: Os,
  members: readonly number[],
  known: ReadonlySet<number>,
): Promise<void> {
  // Before they are looked for: the exit of what is found was not reported yet.
  const watch = os.exits.watch()
  try {
    const vminit = await parentPid(os.files, 'self')
    const ends: Promise<unknown>[] = []
    for (const pid of members) {
      if (known.has(pid) || (await parentPid(os.files, String(pid))) !== vminit) continue
      ends.push(watch.exitOf(pid))
      killIfAlive(os, pid)
    }
    await Promise.all(ends)
  } finally {
    watch.close()
  }
}
