import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'

/** Where a container's files are in the guest. */
export interface Bundle {
  readonly folder: string
  readonly rootfs: string
  readonly config: string
}

/** The paths of a container's bundle; `containerId` was checked. */
export function bundleOf(sharedRoot: string, containerId: string): Bundle {
  const folder = `${sharedRoot}/${containerId}`
  return { folder, rootfs: `${folder}/rootfs`, config: `${folder}/config.json` }
}

/** Makes the bundle's folder; a storage may be mounted below it next. */
export async function makeBundle(os: Os, bundle: Bundle, held: UndoList): Promise<void> {
  await os.files.makeDirectories(bundle.folder, 0o755)
  held.add('bundle', () => os.files.removeTree(bundle.folder))
}

/**
 * Makes `source` the container's root by a plain bind mount (behaviour spec, section C.1, step 9), unless there is
 * one already: a storage was mounted there.
 */
export async function mountRoot(os: Os, bundle: Bundle, source: string, held: UndoList): Promise<void> {
  if ((await os.files.lstat(bundle.rootfs)) !== undefined) return
  await os.files.makeDirectory(bundle.rootfs, 0o755)
  await os.mounts.mount({ source, target: bundle.rootfs, type: '', flags: ['bind'], data: '' })
  held.add('root mount', () => os.mounts.unmount(bundle.rootfs, { detach: true }))
}
