import { AgentError, messageOf } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import { emptyFolder } from './empty-folder.ts'

/** The paths of a container's files in the guest. */
export interface Bundle {
  readonly folder: string
  readonly rootfs: string
  readonly config: string
}

/** The bundle of a container. `containerId` has been checked: it is one safe component of a path. */
export function bundleOf(sharedRoot: string, containerId: string): Bundle {
  const folder = `${sharedRoot}/${containerId}`
  return { folder, rootfs: `${folder}/rootfs`, config: `${folder}/config.json` }
}

/** Makes the bundle's folder, below which storages may be mounted next. */
export async function makeBundle(os: Os, bundle: Bundle, onRemove: UndoList): Promise<void> {
  await os.files.makeDirectories(bundle.folder, 0o755)
  onRemove.add('bundle', () => os.files.removeTree(bundle.folder))
}

/**
 * Makes `source` the container's root by a plain bind mount (behaviour spec, section C.1, step 9). What an earlier container
 * of the same id has left there is removed first. Throws when that fails: a container must not run on the root of
 * another one.
 */
export async function mountRoot(os: Os, bundle: Bundle, source: string, onRemove: UndoList): Promise<void> {
  await emptyFolder(os, bundle.rootfs)
  try {
    await os.mounts.mount({ source, target: bundle.rootfs, type: '', flags: ['bind'], data: '' })
  } catch (error) {
    throw new AgentError('INTERNAL', `root.path: '${source}': cannot be mounted: ${messageOf(error)}`, {
      cause: error,
    })
  }
  onRemove.add('root mount', () => os.mounts.unmount(bundle.rootfs, { detach: true }))
}
