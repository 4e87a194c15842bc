import { withTimeout } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid } from '../../os/process/proc-stat.ts'

/** How long the runs of the previous agent may still take. Then they are killed, with what their hooks have started. */
const RUN_MS = 10_000

/** Which runs of the OCI runtime are meant. */
export interface RunSearch {
  /** The folder of the runtime's state. */
  readonly root: string
  /**
   * Whether a process is in the cgroups of containers. It is no run then, although the first process of a container that
   * crun has made has crun's arguments until it is started.
   */
  readonly isContained: (pid: number) => Promise<boolean>
}

/**
 * Resolves when no run of the OCI runtime that an agent which died has left is under way, of those with `word` among their
 * arguments. Runs that have not ended 10 s after `sinceMs` of the monotonic clock are killed: it is the same for all containers,
 * because all calls wait meanwhile. Throws INTERNAL when that does not end them.
 */
export async function orphanedRunsEnded(
  os: Os,
  search: RunSearch,
  { word, sinceMs }: { readonly word: string; readonly sinceMs: number },
): Promise<void> {
  // Before the search: exits of what it finds are not reported yet.
  const watch = os.exits.watch()
  try {
    const pids = (await orphanedRuns(os, search)).flatMap(({ pid, words }) =>
      words.includes(word) ? [pid] : [],
    )
    const ended = Promise.all(pids.map((pid) => watch.exitOf(pid)))
    const late = () => new AgentError('INTERNAL', `runs of the OCI runtime (${pids.join(', ')}): not ended`)
    const restMs = Math.max(0, sinceMs + RUN_MS - os.clock.monotonicMs())
    await withTimeout(os.clock, restMs, ended, late).catch(() => {
      for (const pid of pids) killIfAlive(os, -pid)
    })
    await withTimeout(os.clock, RUN_MS, ended, late)
  } finally {
    watch.close()
  }
}

/**
 * Kills the runs of the OCI runtime that an agent which died has left under way: they would go on while the restarted
 * agent cleans up. Resolves when they are reaped.
 */
export async function killOrphanedRuns(os: Os, search: RunSearch): Promise<void> {
  // Before the search: exits of what it finds are not reported yet.
  const watch = os.exits.watch()
  try {
    const exits = (await orphanedRuns(os, search)).map(({ pid }) => {
      // A helper program leads a process group of its own, which its hooks belong to.
      killIfAlive(os, -pid)
      return watch.exitOf(pid)
    })
    await Promise.all(exits)
  } finally {
    watch.close()
  }
}

/** A run of the OCI runtime, and its arguments. */
interface OrphanedRun {
  readonly pid: number
  readonly words: readonly string[]
}

/** Children of vminit, which adopts orphans and is the agent's parent too, that have `root` among their arguments. */
export async function orphanedRuns(
  os: Os,
  { root, isContained }: RunSearch,
): Promise<readonly OrphanedRun[]> {
  const vminit = await parentPid(os.files, 'self')
  const runs: OrphanedRun[] = []
  for (const name of await os.files.list('/proc')) {
    if (!/^\d+$/.test(name) || (await parentPid(os.files, name)) !== vminit) continue
    const commandLine = await os.files.readText(`/proc/${name}/cmdline`).catch(() => '')
    const words = commandLine.split('\0')
    const pid = Number(name)
    if (words.includes(root) && !(await isContained(pid))) runs.push({ pid, words })
  }
  return runs
}
