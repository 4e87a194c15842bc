import { withTimeout } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid, pidsWhere, procStatFields } from '../../os/process/proc-stat.ts'

/** Runs of the previous agent that take longer are killed, with what their hooks have started. */
const RUN_MS = 10_000

export interface RunSearch {
  /** The folder of the runtime's state, an argument of every run. */
  readonly root: string
  /** A process in a container's cgroup is no run, although crun's arguments stay on a first process until its start. */
  readonly isContained: (pid: number) => Promise<boolean>
}

/**
 * Waits for the previous agent's runs with `word` among their arguments. Kills those that have not ended 10 s after `sinceMs`
 * of the monotonic clock, which is the same for all containers, because all calls wait meanwhile. Throws INTERNAL when a
 * killed run does not end.
 */
export async function orphanedRunsEnded(
  os: Os,
  search: RunSearch,
  { word, sinceMs }: { readonly word: string; readonly sinceMs: number },
): Promise<void> {
  // Watch before the search, so that no exit of a run that it finds is missed.
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

/** Kills the previous agent's runs, which would go on during the clean-up. Resolves when they are reaped. */
export async function killOrphanedRuns(os: Os, search: RunSearch): Promise<void> {
  const watch = os.exits.watch()
  try {
    const exits = (await orphanedRuns(os, search)).map(({ pid }) => {
      // A run leads a process group of its own, to which its hooks belong.
      killIfAlive(os, -pid)
      return watch.exitOf(pid)
    })
    await Promise.all(exits)
  } finally {
    watch.close()
  }
}

interface OrphanedRun {
  readonly pid: number
  readonly words: readonly string[]
}

/** The children of vminit, which adopts orphans, that have `root` among their arguments. */
export async function orphanedRuns(
  os: Os,
  { root, isContained }: RunSearch,
): Promise<readonly OrphanedRun[]> {
  const vminit = await parentPid(os.files, 'self')
  const children = await pidsWhere(os.files, (stat) => procStatFields(stat)[1] === vminit)
  const runs = children.map(async (pid): Promise<readonly OrphanedRun[]> => {
    if (await isContained(pid)) return []
    const commandLine = await os.files.readText(`/proc/${pid}/cmdline`).catch(() => '')
    const words = commandLine.split('\0')
    return words.includes(root) ? [{ pid, words }] : []
  })
  return (await Promise.all(runs)).flat()
}
