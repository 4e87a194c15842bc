import { abortable } from '../../../../base/abort.ts'
import { messageOf } from '../../../../base/errors.ts'
import type { Logger } from '../../../../base/log.ts'
import { type CopyPlace, copyEntries } from './copy-entries.ts'
import { type Entries, type Entry, type Obstacle, readSource } from './read-source.ts'

/** A copy that follows its source. */
export class WatchedStorage {
  readonly #source: string
  readonly #place: CopyPlace
  readonly #log: Logger
  /** What has been copied. */
  readonly #copied = new Map<string, Entry>()
  /** What was said last; it is not said again every two seconds. */
  #lastComplaint: string | undefined

  constructor(source: string, place: CopyPlace, log: Logger) {
    this.#source = source
    this.#place = place
    this.#log = log
  }

  /**
   * Makes the copy as the source is now. A source that is missing, changing or unreadable leaves it as it was. Throws
   * what the kernel says when the copy cannot be written. While the source is read, which takes for ever when the host
   * is gone, throws what `signal` is aborted with; nothing is written after that.
   */
  async update(signal: AbortSignal): Promise<'copied' | Obstacle | 'unreadable'> {
    const source = await abortable(this.#read(), signal)
    if (typeof source === 'string') return source
    await copyEntries(this.#place, source, this.#copied)
    this.#lastComplaint = undefined
    return 'copied'
  }

  /** Logs why the copy is not as it should be, unless that is known. */
  complain(complaint: string): void {
    if (complaint === this.#lastComplaint) return
    this.#lastComplaint = complaint
    this.#log.warn('watched storage not up to date', { mountPoint: this.#place.path, error: complaint })
  }

  async #read(): Promise<Entries | Obstacle | 'unreadable'> {
    try {
      return await readSource(this.#place.files, this.#source, this.#copied)
    } catch (error) {
      this.complain(messageOf(error))
      return 'unreadable'
    }
  }
}
