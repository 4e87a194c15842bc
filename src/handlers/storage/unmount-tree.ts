import type { Mounts } from '../../os/files/mounts.ts'

/**
 * Unmounts what is mounted at a mount point, and before it what is mounted below: a recursive bind brings the mounts
 * below its source along, and some file systems mount what is mounted in them on the host. Nothing happens where nothing
 * is mounted. What `isOthers` stays, and the mounts it is in with it (EBUSY).
 */
export async function unmountTree(
  mounts: Mounts,
  mountPoint: string,
  isOthers: (mountPoint: string) => boolean = () => false,
): Promise<void> {
  const all = await mounts.list()
  if (!all.some((mount) => mount.mountPoint === mountPoint)) return
  const below = all.filter((mount) => mount.mountPoint.startsWith(`${mountPoint}/`))
  // What was mounted later may be in or upon what was before.
  for (const mount of below.toReversed()) {
    if (!isOthers(mount.mountPoint)) await mounts.unmount(mount.mountPoint)
  }
  await mounts.unmount(mountPoint)
}
