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

/** The paths of a container's files in the guest. */
export interface Bundle {
  readonly folder: string
  readonly rootfs: string
  readonly config: string
}

/** The bundle of a container. Its key has been checked: it is one safe component of a path. */
export function bundleOf(sharedRoot: string, key: string): Bundle {
  const folder = `${sharedRoot}/${key}`
  return { folder, rootfs: `${folder}/rootfs`, config: `${folder}/config.json` }
}

/** Makes the bundle's folder, below which storages may be mounted next. */
export async function makeBundle(os: Os, bundle: Bundle, onRemove: UndoList): Promise<void> {
  await os.files.makeDirectories(bundle.folder, 0o755)
  onRemove.add('bundle', () => removeBundle(os, bundle))
}

/** Removes a bundle's folder. Mostly nothing is left in it but what is made here, in memory. */
export async function removeBundle(os: Os, { folder, rootfs, config }: Bundle): Promise<void> {
  try {
    await removeIfPresent('ENOENT', () => os.scratch.removeFile(config))
    await removeIfPresent('ENOENT', () => os.scratch.removeDirectory(rootfs))
    await os.scratch.removeDirectory(folder)
  } catch {
    await os.files.removeTree(folder)
  }
}

/**
 * Makes `source` the container's root by a plain bind mount. What an earlier container of the same id has left
 * there is removed first. Throws when that fails: a container must not run on the root of another one.
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

/** The specification of a container as this guest runs it, its record, and its copy in the bundle's `config.json`. */
export class StoredSpec {
  readonly #files: ScratchFiles
  readonly #path: string
  readonly #record: ContainerRecord
  #spec: ContainerSpec['spec']

  /** `path` is that of `config.json`; nothing is written yet. */
  constructor(files: ScratchFiles, path: string, record: ContainerRecord, spec: ContainerSpec['spec']) {
    this.#files = files
    this.#path = path
    this.#record = record
    this.#spec = spec
  }

  get current(): ContainerSpec['spec'] {
    return this.#spec
  }

  /** Writes the record and the copy, each completely or not at all. */
  async save(): Promise<void> {
    this.#record.saveSpec(this.#spec)
    const unfinished = `${this.#path}.new`
    await this.#files.write(unfinished, printJson(runtimeConfig(this.#spec)), { mode: 0o600 })
    await this.#files.rename(unfinished, this.#path)
  }

  /** Merges the limits of an update into the specification, and saves it. */
  async setResources(update: LinuxResources): Promise<void> {
    const { Linux: linux } = this.#spec
    this.#spec = { ...this.#spec, Linux: { ...linux, Resources: mergeResources(linux.Resources, update) } }
    await this.save()
  }
}
