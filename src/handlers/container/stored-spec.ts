import type { LinuxResources } from '../../gen/oci.ts'
import type { ContainerSpec } from '../../oci/container-spec.ts'
import { printJson } from '../../oci/json.ts'
import { mergeResources } from '../../oci/resources.ts'
import { runtimeConfig } from '../../oci/runtime-config.ts'
import type { Files } from '../../os/files/files.ts'

/** The specification of a container as this guest runs it, and its copy in the bundle's `config.json`. */
export class StoredSpec {
  readonly #files: Files
  readonly #path: string
  #spec: ContainerSpec['spec']

  /** `path` is that of `config.json`; nothing is written yet. */
  constructor(files: Files, path: string, spec: ContainerSpec['spec']) {
    this.#files = files
    this.#path = path
    this.#spec = spec
  }

  get current(): ContainerSpec['spec'] {
    return this.#spec
  }

  /** Writes the copy, completely or not at all. */
  async save(): Promise<void> {
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
