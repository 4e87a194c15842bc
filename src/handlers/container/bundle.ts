import { AgentError, messageOf } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import { emptyFolder } from './empty-folder.ts'

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
 * Makes `source` the container's root by a plain bind mount (behaviour spec, section C.1, step 9). Anything else that is
 * there was left by an earlier container of the same id, and is taken away: throws when that is not possible, for a
 * container must not run on the root of another one.
 */
export async function mountRoot(os: Os, bundle: Bundle, source: string, held: UndoList): Promise<void> {
  await emptyFolder(os, bundle.rootfs)
  try {
    await os.mounts.mount({ source, target: bundle.rootfs, type: '', flags: ['bind'], data: '' })
  } catch (error) {
    throw new AgentError('INTERNAL', `Root.Path: '${source}' cannot be the root: ${messageOf(error)}`, {
      cause: error,
    })
  }
  held.add('root mount', () => os.mounts.unmount(bundle.rootfs, { detach: true }))
}
