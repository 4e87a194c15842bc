import { neverAborted } from '../../base/abort.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { UndoList } from '../../base/undo.ts'
import type { SplitSysctls } from '../../oci/sysctls.ts'
import type { Files } from '../../os/files/files.ts'

/** What one container has set a sysctl to, and what is to come back when its creation fails. */
interface Setting {
  before: string
}

/** The sysctls that are the guest's and that containers ask for. The last one who asked has its way. */
export class GuestSysctls {
  readonly #files: Files
  /** The settings of each file, in their order, of containers that exist or are being made. */
  readonly #settings = new Map<string, Setting[]>()
  /** Reading the value before and writing the new one are two steps, which those of another must not come between. */
  readonly #queue = new SerialQueue()

  constructor(files: Files) {
    this.#files = files
  }

  /**
   * Sets them for a container. By `undo`, a creation that fails sets back what nobody else has set meanwhile; by `held`,
   * a removed container is forgotten, while its values stay. Throws the kernel's word, or what `signal` is aborted with.
   */
  async set(
    sysctls: SplitSysctls['guest'],
    lists: { readonly undo: UndoList; readonly held: UndoList },
    signal: AbortSignal,
  ): Promise<void> {
    for (const { path, value } of sysctls) {
      const setting = await this.#queue.run(() => this.#setOne(path, value), signal)
      lists.held.add(`forget sysctl ${path}`, () => this.#forget(path, setting))
      lists.undo.add(`sysctl ${path}`, () => this.#restore(path, setting))
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
      // What the later one would bring back is what is taken back here.
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
