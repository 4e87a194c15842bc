import { neverAborted } from '../../base/abort.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { UndoList } from '../../base/undo.ts'
import type { SplitSysctls } from '../../oci/sysctls.ts'
import type { Files } from '../../os/files/files.ts'

interface Setting {
  /** The value to restore when the container's creation fails. */
  before: string
}

/** Sysctls that containers set for the whole guest. The latest container's value is in effect. */
export class GuestSysctls {
  readonly #files: Files
  /** By path, oldest first: the settings of containers that exist or are being created. */
  readonly #settings = new Map<string, Setting[]>()
  /** Serializes changes, because each reads the old value and then writes the new one. */
  readonly #queue = new SerialQueue()

  constructor(files: Files) {
    this.#files = files
  }

  async read(sysctls: SplitSysctls['guest']): Promise<{ path: string; before: string }[]> {
    const read = async (path: string) => ({ path, before: await this.#files.readText(path) })
    return Promise.all(sysctls.map(({ path }) => read(path)))
  }

  /** Takes over sysctls that the previous agent set for a container. */
  restore(sysctls: readonly { readonly path: string; readonly before: string }[], onRemove: UndoList): void {
    for (const { path, before } of sysctls) {
      const setting = { before }
      this.#settings.set(path, [...(this.#settings.get(path) ?? []), setting])
      onRemove.add(`forget sysctl ${path}`, () => this.#forget(path, setting))
    }
  }

  /**
   * Sets the sysctls of a container. A failed creation restores the values that no other container has set meanwhile; the
   * values of a removed container stay. Throws the kernel's error, or the reason of `signal`.
   */
  async set(
    sysctls: SplitSysctls['guest'],
    lists: { readonly onFailure: UndoList; readonly onRemove: UndoList },
    signal: AbortSignal,
  ): Promise<void> {
    for (const { path, value } of sysctls) {
      const setting = await this.#queue.run(() => this.#setOne(path, value), signal)
      lists.onRemove.add(`forget sysctl ${path}`, () => this.#forget(path, setting))
      lists.onFailure.add(`sysctl ${path}`, () => this.#restore(path, setting))
    }
  }

  async #setOne(path: string, value: string): Promise<Setting> {
    const setting = { before: await this.#files.readText(path) }
    await this.#files.write(path, value)
    this.#settings.set(path, [...(this.#settings.get(path) ?? []), setting])
    return setting
  }

  async #restore(path: string, setting: Setting): Promise<void> {
    const work = async () => {
      const settings = this.#settings.get(path) ?? []
      const later = settings[settings.indexOf(setting) + 1]
      this.#forget(path, setting)
      // The later setting must not restore the value that is being undone.
      if (later !== undefined) later.before = setting.before
      else await this.#files.write(path, setting.before)
    }
    await this.#queue.run(work, neverAborted)
  }

  #forget(path: string, setting: Setting): void {
    const left = (this.#settings.get(path) ?? []).filter((each) => each !== setting)
    if (left.length > 0) this.#settings.set(path, left)
    else this.#settings.delete(path)
  }
}
