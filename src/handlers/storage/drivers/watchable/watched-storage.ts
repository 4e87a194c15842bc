import { abortable } from '../../../../base/abort.ts'
import { messageOf } from '../../../../base/errors.ts'
import type { Logger } from '../../../../base/log.ts'
import { type CopyPlace, copyEntries } from './copy-entries.ts'
import { type Entries, type Entry, type Obstacle, readSource } from './read-source.ts'

export class WatchedStorage {
  readonly #source: string
  readonly #place: CopyPlace
  readonly #log: Logger
  readonly #copied = new Map<string, Entry>()
  /** Not logged again every two seconds. */
  #lastWarning: string | undefined

  constructor(source: string, place: CopyPlace, log: Logger) {
    this.#source = source
    this.#place = place
    this.#log = log
  }

  /**
   * Leaves the copy unchanged while the source is missing, changing or unreadable. A read never ends when the host is
   * gone; `signal` aborts it before anything is written. Throws the kernel's error when the copy cannot be written.
   */
  async update(signal: AbortSignal): Promise<'copied' | Obstacle | 'unreadable'> {
    const source = await abortable(this.#read(), signal)
    if (typeof source === 'string') return source
    await copyEntries(this.#place, source, this.#copied)
    this.#lastWarning = undefined
    return 'copied'
  }

  warnOnce(warning: string): void {
    if (warning === this.#lastWarning) return
    this.#lastWarning = warning
    this.#log.warn('watched storage not up to date', { mountPoint: this.#place.path, error: warning })
  }

  async #read(): Promise<Entries | Obstacle | 'unreadable'> {
    try {
      return await readSource(this.#place.files, this.#source, this.#copied)
    } catch (error) {
      this.warnOnce(messageOf(error))
      return 'unreadable'
    }
  }
}
