import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid } from '../../os/process/proc-stat.ts'

/**
 * Kills the runs of the OCI runtime that an agent which died has left under way: they would go on while the restarted
 * agent cleans up. `root` is the folder of the runtime's state. Resolves when they are reaped.
 */
export async function killOrphanedRuns(os: Os, root: string): Promise<void> {
  // Before the search: exits of what it finds are not reported yet.
  const watch = os.exits.watch()
  try {
    const exits = (await orphanedRuns(os, root)).map((pid) => {
      // A helper program leads a process group of its own, which its hooks belong to.
      killIfAlive(os, -pid)
      return watch.exitOf(pid)
    })
    await Promise.all(exits)
  } finally {
    watch.close()
  }
}

/** Children of vminit, which adopts orphans and is the agent's parent too, that have `root` among their arguments. */
async function orphanedRuns(os: Os, root: string): Promise<number[]> {
  const vminit = await parentPid(os.files, 'self')
  const runs: number[] = []
  for (const name of await os.files.list('/proc')) {
    if (!/^\d+$/.test(name) || (await parentPid(os.files, name)) !== vminit) continue
    const commandLine = await os.files.readText(`/proc/${name}/cmdline`).catch(() => '')
    if (commandLine.split('\0').includes(root)) runs.push(Number(name))
  }
  return runs
}
