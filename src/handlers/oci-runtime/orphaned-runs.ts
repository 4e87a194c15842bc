import type { Os } from '../../os/os.ts'
import { killIfThere } from '../process/kill-if-there.ts'
import { parentOf, textOf } from '../process/parent-of.ts'

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
      killIfThere(os, -pid)
      return watch.exitOf(pid)
    })
    await Promise.all(ends)
  } finally {
    watch.close()
  }
}

/** Orphans fall to vminit, whose child we are as well; `root` as an argument says that they were ours. */
async function orphanedRuns(os: Os, root: string): Promise<number[]> {
  const vminit = await parentOf(os, 'self')
  const found: number[] = []
  for (const name of await os.files.list('/proc')) {
    if (!/^\d+$/.test(name) || (await parentOf(os, name)) !== vminit) continue
    if ((await textOf(os, `/proc/${name}/cmdline`)).split('\0').includes(root)) found.push(Number(name))
  }
  return found
}
