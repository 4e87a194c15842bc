import { abortable } from '../../../../base/abort.ts'
import { messageOf } from '../../../../base/errors.ts'
import type { Logger } from '../../../../base/log.ts'
import { type CopyPlace, copyEntries } from './copy-entries.ts'
import { type Entries, type Entry, type Obstacle, readSource } from './read-source.ts'

/** A copy that is kept up to date with its source. */
export class WatchedStorage {
  readonly #source: string
  readonly #place: CopyPlace
  readonly #log: Logger
  /** The entries that have been copied, by path. */
  readonly #copied = new Map<string, Entry>()
  /** The last warning, which is not logged again every two seconds. */
  #lastWarning: string | undefined

  constructor(source: string, place: CopyPlace, log: Logger) {
    this.#source = source
    this.#place = place
    this.#log = log
  }

  /**
   * Updates the copy. A source that is missing, changing or unreadable leaves the copy unchanged. Throws the kernel's
   * error when the copy cannot be written. While it reads the source, which never ends when the host is gone, it throws
   * what `signal` is aborted with and writes nothing.
   */
  async update(signal: AbortSignal): Promise<'copied' | Obstacle | 'unreadable'> {
    const source = await abortable(this.#read(), signal)
    if (typeof source === 'string') return source
    await copyEntries(this.#place, source, this.#copied)
    this.#lastWarning = undefined
    return 'copied'
  }

  /** Logs why the copy is not up to date, unless this was the last warning. */
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
