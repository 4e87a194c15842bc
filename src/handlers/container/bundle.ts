import { AgentError, messageOf } from '../../base/errors.ts'
import { removeIfPresent, type UndoList } from '../../base/undo.ts'
import type { LinuxResources } from '../../gen/oci.ts'
import type { ContainerSpec } from '../../oci/container-spec.ts'
import { printJson } from '../../oci/json.ts'
import { mergeResources } from '../../oci/resources.ts'
import { runtimeConfig } from '../../oci/runtime-config.ts'
import type { ScratchFiles } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'
import { emptyFolder } from '../storage/empty-folder.ts'
import type { ContainerRecord } from './container-record.ts'

export interface Bundle {
  readonly folder: string
  readonly rootfs: string
  readonly config: string
}

/** `key` must have been checked: it becomes one component of a path. */
export function bundleOf(sharedRoot: string, key: string): Bundle {
  const folder = `${sharedRoot}/${key}`
  return { folder, rootfs: `${folder}/rootfs`, config: `${folder}/config.json` }
}

/** Removes a bundle's folder. The three cheap calls suffice unless other files are left in it. */
export async function removeBundle(os: Os, { folder, rootfs, config }: Bundle): Promise<void> {
  try {
    await removeIfPresent('ENOENT', () => os.scratch.removeFile(config))
    await removeIfPresent('ENOENT', () => os.scratch.removeDirectory(rootfs))
    await os.scratch.removeDirectory(folder)
  } catch {
    await os.files.removeTree(folder)
  }
}

/** Bind-mounts `source` on an emptied root. Throws when either fails: no container may run on the root of another one. */
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

/** A container's specification as this guest runs it, stored in the record and in the bundle's `config.json`. */
export class StoredSpec {
  readonly #files: ScratchFiles
  readonly #path: string
  readonly #record: ContainerRecord

  constructor(files: ScratchFiles, path: string, record: ContainerRecord) {
    this.#files = files
    this.#path = path
    this.#record = record
  }

  get current(): ContainerSpec['spec'] {
    return this.#record.readSpec()
  }

  /** Writes the record and `config.json`, each completely or not at all. */
  async save(spec: ContainerSpec['spec']): Promise<void> {
    this.#record.saveSpec(spec)
    await this.#files.replace(this.#path, printJson(runtimeConfig(spec)), 0o600)
  }

  async setResources(update: LinuxResources): Promise<void> {
    const { Linux: linux } = this.current
    const Resources = mergeResources(linux.Resources, update)
    await this.save({ ...this.current, Linux: { ...linux, Resources } })
  }
}
