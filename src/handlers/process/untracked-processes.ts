import { neverAborted, withTimeout } from '../../base/abort.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid } from '../../os/process/proc-stat.ts'
import { END_MS, notEnded } from './launch.ts'
import type { ProcessOwner } from './owner.ts'
import type { Reservation } from './process-table.ts'

type SearchOs = Pick<Os, 'exits' | 'files' | 'system'>

/** The undo of an exec: kills processes that the runtime added without reporting a pid. Throws INTERNAL if they live on. */
export async function killUntrackedProcesses(
  os: SearchOs & Pick<Os, 'clock'>,
  { init, processes, cgroup }: Pick<ProcessOwner, 'init' | 'processes' | 'cgroup'>,
  reservation: Pick<Reservation, 'searchUntracked'>,
): Promise<void> {
  reservation.searchUntracked()
  const search = async () => {
    let members = await cgroup.members()
    // List the members only while no exec is in flight: a process that is just being added is not tracked yet.
    while (await processes.added()) members = await cgroup.members()
    const tracked = new Set([init, ...processes.tracked()].map(({ pid }) => pid))
    await killUntracked(os, members, tracked)
  }
  const killed = processes.untrackedSearch.run(search, neverAborted)
  await withTimeout(os.clock, END_MS, killed, () => notEnded('without a known pid'))
}

/** Kills the untracked `members` that vminit is the parent of, because a runtime made them. Resolves when they are reaped. */
export async function killUntracked(
  os: SearchOs,
  members: readonly number[],
  tracked: ReadonlySet<number>,
): Promise<void> {
  // Watch before the search, so that no exit of a process that it finds is missed.
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
