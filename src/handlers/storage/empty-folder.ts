import { isWithin } from '../../base/paths.ts'
import type { MountEntry } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'

type Kernel = Pick<Os, 'files' | 'mounts'>

/** Makes `root` an empty directory; removes old content like {@link clearFolder}. */
export async function emptyFolder(os: Kernel & Pick<Os, 'scratch'>, root: string): Promise<void> {
  try {
    // A new directory has no content and no mounts.
    await os.scratch.makeDirectory(root, 0o755)
  } catch {
    await clearFolder(os, root)
    await os.files.makeDirectories(root, 0o755)
  }
}

/** Removes `root` after unmounting all at or below it, so mounts keep their content. Throws when a mount stays. */
export async function clearFolder(os: Kernel, root: string): Promise<void> {
  await unmountAll(os, root)
  await os.files.removeTree(root)
}

/** Repeats while an unmount succeeds: a mount that is hidden under another can be unmounted only after it. */
async function unmountAll(os: Kernel, root: string): Promise<void> {
  for (;;) {
    const mounts = (await os.mounts.list()).filter(({ mountPoint }) => isWithin(mountPoint, root))
    if (mounts.length === 0) return
    const failures: unknown[] = []
    for (const { mountPoint } of deepestFirst(mounts)) {
      await os.mounts.unmount(mountPoint).catch((error: unknown) => failures.push(error))
    }
    if (failures.length === mounts.length) throw failures[0]
  }
}

/** Of mounts at the same point, the latest is on top and comes first. */
function deepestFirst(mounts: readonly MountEntry[]): MountEntry[] {
  const depth = ({ mountPoint }: MountEntry) => mountPoint.split('/').length
  return mounts.toReversed().sort((a, b) => depth(b) - depth(a))
}
