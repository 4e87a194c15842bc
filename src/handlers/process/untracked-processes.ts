import { neverAborted, withTimeout } from '../../base/abort.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid } from '../../os/process/proc-stat.ts'
import { END_MS, notEnded } from './launch.ts'
import type { ProcessOwner } from './owner.ts'
import type { Reservation } from './process-table.ts'

/** What the search for untracked processes needs of the kernel. */
type SearchOs = Pick<Os, 'exits' | 'files' | 'system'>

/**
 * Kills the processes that the runtime has added to a container without telling their pids: the undo of an exec whose
 * `reservation` is taken. Throws INTERNAL when they do not end in time.
 */
export async function killUntrackedProcesses(
  os: SearchOs & Pick<Os, 'clock'>,
  { init, processes, cgroup }: Pick<ProcessOwner, 'init' | 'processes' | 'cgroup'>,
  reservation: Pick<Reservation, 'searchUntracked'>,
): Promise<void> {
  reservation.searchUntracked()
  const search = async () => {
    let members = await cgroup.members()
    // Lists the members only while no exec is in flight: a process that is just being added is not tracked yet.
    while (await processes.added()) members = await cgroup.members()
    const tracked = new Set([init, ...processes.tracked()].map(({ pid }) => pid))
    await killUntracked(os, members, tracked)
  }
  const killed = processes.untrackedSearch.run(search, neverAborted)
  await withTimeout(os.clock, END_MS, killed, () => notEnded('without a known pid'))
}

/**
 * Kills those of `members` that are children of vminit, which only the processes are that a runtime has made, and that
 * are not `tracked`. Resolves when they are reaped.
 */
export async function killUntracked(
  os: SearchOs,
  members: readonly number[],
  tracked: ReadonlySet<number>,
): Promise<void> {
  // Before the search: exits of what it finds are not reported yet.
  const watch = os.exits.watch()
  try {
    const vminit = await parentPid(os.files, 'self')
    const exits: Promise<unknown>[] = []
    for (const pid of members) {
      if (tracked.has(pid) || (await parentPid(os.files, String(pid))) !== vminit) continue
      exits.push(watch.exitOf(pid))
      killIfAlive(os, pid)
    }
    await Promise.all(exits)
  } finally {
    watch.close()
  }
}
