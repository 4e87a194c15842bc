import type { StorageDependencies } from '../../driver.ts'
import { checkMountPoint } from '../../mount-point.ts'
import type { LayerDirectory } from './layer-directory.ts'

/** The folders that an overlay writes to. */
interface UpperFolders {
  readonly upperdir: string
  readonly workdir: string
}

/**
 * Makes the folders of an upper layer that is mounted at `root`: those that the host asks for, and the two of the
 * overlay. What is there is kept, for the disk may have been used before; links on the way are refused, for the disk is
 * the host's. They stay on the disk.
 */
export async function prepareUpper(
  root: string,
  directories: readonly LayerDirectory[],
  { os: { files }, allowedRoots }: StorageDependencies,
): Promise<UpperFolders> {
  const folders = { upperdir: `${root}/upper`, workdir: `${root}/work` }
  for (const { path, mode, owner } of directories) {
    const folder = `${root}/${path}`
    await checkMountPoint(files, folder, allowedRoots)
    if ((await files.lstat(folder)) !== undefined) continue
    await files.makeDirectories(folder, 0o755)
    await files.chmod(folder, mode)
    if (owner !== undefined) await files.chown(folder, owner.uid, owner.gid)
  }
  for (const folder of Object.values(folders)) {
    await checkMountPoint(files, folder, allowedRoots)
    if ((await files.lstat(folder)) === undefined) await files.makeDirectory(folder, 0o755)
  }
  return folders
}
