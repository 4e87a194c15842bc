import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { type Attachment, detach, isThere } from './attachment.ts'
import type { StorageDependencies } from './driver.ts'

interface Entry {
  references: number
  /** Once claimed with `shared`, it stays until the sandbox ends. */
  shared: boolean
  /** Set once attached. */
  attachment: Attachment | undefined
  /** Attaching or detaching, while that goes on; never rejects. Whoever comes then waits for its end. */
  transition: Promise<void> | undefined
}

/** How one claim is made good. */
export interface Acquisition {
  readonly mountPoint: string
  readonly shared: boolean
  readonly attach: () => Promise<Attachment>
}

/** Who uses which mount point: the first claim attaches, the last one that is given up detaches (spec E.1). */
export class StorageReferences {
  readonly #entries = new Map<string, Entry>()
  readonly #os: StorageDependencies['os']

  constructor(os: StorageDependencies['os']) {
    this.#os = os
  }

  /**
   * Claims a mount point. While another call attaches or detaches it, this one waits for the outcome; when that
   * attaching failed, this one tries by itself. Tells whether this claim made it. Throws
   * FAILED_PRECONDITION when what is there is of no use any more, what attaching threw, what taking away an earlier
   * storage threw, or what `signal` is aborted with; no claim is left then.
   */
  async acquire(acquire: Acquisition, signal: AbortSignal): Promise<'made' | 'joined'> {
    const outcome = await this.#acquire(acquire, signal)
    if (outcome === 'joined') await this.#refuseLost(acquire.mountPoint)
    return outcome
  }

  async #acquire(acquire: Acquisition, signal: AbortSignal): Promise<'made' | 'joined'> {
    for (;;) {
      const entry = this.#entries.get(acquire.mountPoint)
      if (entry?.transition !== undefined) {
        await abortable(entry.transition, signal)
      } else if (entry?.attachment !== undefined && entry.references > 0) {
        entry.references += 1
        entry.shared ||= acquire.shared
        return 'joined'
      } else if (entry?.attachment !== undefined && !stays(entry, entry.attachment)) {
        // It could not be taken away, and may be another storage than the one asked for.
        await this.#detach(entry, entry.attachment)
      } else {
        return this.#attach(acquire, entry)
      }
    }
  }

  /** Those who have it keep it, for they may still give it back. */
  async #refuseLost(mountPoint: string): Promise<void> {
    const lost = await this.#entries.get(mountPoint)?.attachment?.lost?.().catch(messageOf)
    if (lost === undefined) return
    await this.release(mountPoint)
    throw new AgentError('FAILED_PRECONDITION', `storage ${mountPoint}: ${lost}`)
  }

  /**
   * Gives one claim up. What is shared or to be kept stays although nobody claims it, unless `newlyMade`: the request
   * that made it has failed. Throws when nothing is claimed there, or when the last claim's storage cannot be taken
   * away.
   */
  async release(
    mountPoint: string,
    options: { readonly newlyMade: boolean } = { newlyMade: false },
  ): Promise<void> {
    const entry = this.#entries.get(mountPoint)
    if (entry?.attachment === undefined || entry.references === 0) {
      throw new AgentError('INTERNAL', `${mountPoint} is not in use`)
    }
    entry.references -= 1
    if (entry.references > 0) return
    if (!stays(entry, entry.attachment) || options.newlyMade) await this.#detach(entry, entry.attachment)
  }

  /**
   * Takes away what has stayed although nobody claims it, the newest first, but plain directories, whose content is to
   * go with the folder that they are in. Tries all, then throws the first failure.
   */
  async clear(): Promise<void> {
    const failures: unknown[] = []
    for (const entry of [...this.#entries.values()].reverse()) {
      const { attachment, references, transition } = entry
      if (attachment === undefined || references > 0 || transition !== undefined) continue
      if (attachment.kind === 'directory') this.#entries.delete(attachment.mountPoint)
      else await this.#detach(entry, attachment).catch((error) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
  }

  /** Whether somebody uses a mount point at or below `folder`. */
  isUsed(folder: string): boolean {
    return [...this.#entries].some(
      ([mountPoint, { references }]) => references > 0 && isWithin(mountPoint, folder),
    )
  }

  /** Whether a mount below `own` is another storage, or has one in it. */
  #isOthers(path: string, own: string): boolean {
    return [...this.#entries.keys()].some(
      (other) => other !== own && (isWithin(other, path) || isWithin(path, other)) && isWithin(other, own),
    )
  }

  /** The first claim; `left` is what nobody has used for a while, which stays known when this fails. */
  async #attach(
    { mountPoint, shared, attach }: Acquisition,
    left: Entry | undefined,
  ): Promise<'made' | 'joined'> {
    const done = Promise.withResolvers<void>()
    const entry: Entry = { references: 1, shared, attachment: undefined, transition: done.promise }
    this.#entries.set(mountPoint, entry)
    let kept = left
    try {
      // Somebody may have cleaned up below the root meanwhile.
      if (left?.attachment !== undefined && (await isThere(this.#os, left.attachment))) {
        entry.attachment = left.attachment
        entry.shared ||= left.shared
        return 'joined'
      }
      kept = undefined
      await left?.attachment?.end?.()
      await left?.attachment?.release?.()
      entry.attachment = await attach()
      return 'made'
    } catch (error) {
      if (kept === undefined) this.#entries.delete(mountPoint)
      else this.#entries.set(mountPoint, kept)
      throw error
    } finally {
      entry.transition = undefined
      done.resolve()
    }
  }

  /** What cannot be taken away remains known, so that it is not mounted over. */
  async #detach(entry: Entry, attachment: Attachment): Promise<void> {
    const done = Promise.withResolvers<void>()
    entry.transition = done.promise
    try {
      await detach(this.#os, attachment, (path) => this.#isOthers(path, attachment.mountPoint))
      this.#entries.delete(attachment.mountPoint)
    } finally {
      entry.transition = undefined
      done.resolve()
    }
  }
}

/** What stays on purpose although nobody claims it. */
function stays({ shared }: Entry, { keep }: Attachment): boolean {
  return shared || keep
}
