import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid } from '../../os/process/proc-stat.ts'

/**
 * Kills the runs of the OCI runtime that an agent which died has left under way: they would go on with what they were
 * told, whatever is cleaned up meanwhile. `root` is the folder the runtime was started with. Resolves when they are
 * reaped.
 */
export async function endOrphanedRuns(os: Os, root: string): Promise<void> {
  // Before they are looked for: the exit of what is found was not reported yet.
  const watch = os.exits.watch()
  try {
    const ends = (await orphanedRuns(os, root)).map((pid) => {
      // Helper programs lead process groups of their own, which their hooks belong to.
      killIfAlive(os, -pid)
      return watch.exitOf(pid)
    })
    await Promise.all(ends)
  } finally {
    watch.close()
  }
}

/** Orphans fall to vminit, whose child we are as well; `root` as an argument says that they were ours. */
async function orphanedRuns(os: Os, root: string): Promise<number[]> {
  const vminit = await parentPid(os.files, 'self')
  const found: number[] = []
  for (const name of await os.files.list('/proc')) {
    if (!/^\d+$/.test(name) || (await parentPid(os.files, name)) !== vminit) continue
    if ((await os.files.readText(`/proc/${name}/cmdline`).catch(() => '')).split('\0').includes(root))
      found.push(Number(name))
  }
  return found
}
