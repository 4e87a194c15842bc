import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { type Attachment, detach, isPresent } from './attachment.ts'
import type { StorageDependencies } from './driver.ts'
import type { StorageGroup } from './drivers/image/layer-options.ts'
import { haveSameOptions, refuseOtherStorage, warnOfOptions } from './identity.ts'

/** The storage at one mount point. */
interface Entry {
  references: number
  /** Whether a request marked it as shared; it then stays attached until the sandbox ends. */
  shared: boolean
  /** What the request that attached it asked for. */
  requested: StorageGroup
  /** Whether the log says that a request got it with options other than its own. */
  warned: boolean
  /** Set once attached. */
  attachment: Attachment | undefined
  /** Set while it is being attached or detached; other calls wait for it. Never rejects. */
  transition: Promise<void> | undefined
}

/** A request for one reference; `attach` is called when the mount point has no attached storage. */
export interface Acquisition {
  readonly mountPoint: string
  readonly shared: boolean
  readonly requested: StorageGroup
  readonly attach: () => Promise<Attachment>
  /** Waits for the disk and returns its node; undefined for what is no disk. */
  readonly deviceOf: (() => Promise<string>) | undefined
}

/** Counts the references to each mount point: the first one attaches the storage, releasing the last one detaches it (spec E.1). */
export class StorageReferences {
  readonly #entries = new Map<string, Entry>()
  readonly #os: StorageDependencies['os']
  readonly #log: StorageDependencies['log']

  constructor({ os, log }: Pick<StorageDependencies, 'os' | 'log'>) {
    this.#os = os
    this.#log = log
  }

  /**
   * Acquires a reference to a mount point, and returns whether this call attached the storage. While another call
   * attaches or detaches it, this one waits for the outcome, and attaches by itself when the other one failed. Throws
   * FAILED_PRECONDITION when the attached storage can no longer be used or is another one than the requested, an error of
   * `attach`, an error of detaching an earlier storage there, or what `signal` is aborted with; the call then holds no
   * reference.
   */
  async acquire(acquire: Acquisition, signal: AbortSignal): Promise<'attached' | 'reused'> {
    const outcome = await this.#acquire(acquire, signal)
    if (outcome === 'attached') return outcome
    try {
      await this.#join(acquire)
    } catch (error) {
      await this.release(acquire.mountPoint)
      throw error
    }
    return outcome
  }

  async #acquire(acquire: Acquisition, signal: AbortSignal): Promise<'attached' | 'reused'> {
    for (;;) {
      const entry = this.#entries.get(acquire.mountPoint)
      if (entry?.transition !== undefined) {
        await abortable(entry.transition, signal)
      } else if (entry?.attachment !== undefined && entry.references > 0) {
        entry.references += 1
        entry.shared ||= acquire.shared
        return 'reused'
      } else if (entry?.attachment !== undefined && !isKept(entry, entry.attachment)) {
        // An earlier detach failed, and the mount point may hold another storage than the requested one.
        await this.#detach(entry, entry.attachment)
      } else {
        return this.#attach(acquire, entry)
      }
    }
  }

  /** Throws when a request that has got a reference cannot use the attached storage. */
  async #join({ mountPoint, requested, deviceOf }: Acquisition): Promise<void> {
    const entry = this.#entries.get(mountPoint)
    if (entry?.attachment === undefined)
      throw new AgentError('INTERNAL', `storage ${mountPoint}: not attached`)
    const fault = await entry.attachment.fault?.().catch(messageOf)
    if (fault !== undefined) throw new AgentError('FAILED_PRECONDITION', `storage ${mountPoint}: ${fault}`)
    const attached = { requested: entry.requested, device: entry.attachment.device }
    await refuseOtherStorage(attached, requested, deviceOf)
    if (entry.warned || haveSameOptions(entry.requested, requested)) return
    entry.warned = true
    warnOfOptions(this.#log, entry.requested, requested)
  }

  /**
   * Releases one reference. A storage that is shared or has `keep` stays attached without references, unless
   * `newlyAttached` says that the request that attached it has failed. Throws INTERNAL when the mount point has no
   * references, and what detaching throws.
   */
  async release(
    mountPoint: string,
    options: { readonly newlyAttached: boolean } = { newlyAttached: false },
  ): Promise<void> {
    const entry = this.#entries.get(mountPoint)
    if (entry?.attachment === undefined || entry.references === 0) {
      throw new AgentError('INTERNAL', `storage ${mountPoint}: not in use`)
    }
    entry.references -= 1
    if (entry.references > 0) return
    if (!isKept(entry, entry.attachment) || options.newlyAttached) await this.#detach(entry, entry.attachment)
  }

  /**
   * Detaches the storages that stayed attached without references, the newest first. Plain directories are only
   * forgotten: their content is removed with the folder that contains them. Tries all, then throws the first error.
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

  /** Whether a mount point at or below `folder` has references. */
  isUsed(folder: string): boolean {
    return [...this.#entries].some(
      ([mountPoint, { references }]) => references > 0 && isWithin(mountPoint, folder),
    )
  }

  /** Whether the mount `path` below `own` is another storage, contains one or is inside one. */
  #isOtherStorage(path: string, own: string): boolean {
    return [...this.#entries.keys()].some(
      (other) => other !== own && (isWithin(other, path) || isWithin(path, other)) && isWithin(other, own),
    )
  }

  /**
   * Attaches the storage for the first reference, or reuses `unused`, the entry of a storage that is attached without
   * references. When the mount table cannot be read, `unused` stays registered.
   */
  async #attach(
    { mountPoint, shared, requested, attach }: Acquisition,
    unused: Entry | undefined,
  ): Promise<'attached' | 'reused'> {
    const done = Promise.withResolvers<void>()
    const fresh = { references: 1, shared, requested, warned: false, attachment: undefined }
    const entry: Entry = { ...fresh, transition: done.promise }
    this.#entries.set(mountPoint, entry)
    let previous = unused
    try {
      // The mount may have been removed from outside.
      if (unused?.attachment !== undefined && (await isPresent(this.#os, unused.attachment))) {
        const { attachment, requested: first, warned } = unused
        Object.assign(entry, { attachment, requested: first, warned, shared: shared || unused.shared })
        return 'reused'
      }
      previous = undefined
      await unused?.attachment?.stop?.()
      await unused?.attachment?.onRemove?.()
      entry.attachment = await attach()
      return 'attached'
    } catch (error) {
      if (previous === undefined) this.#entries.delete(mountPoint)
      else this.#entries.set(mountPoint, previous)
      throw error
    } finally {
      entry.transition = undefined
      done.resolve()
    }
  }

  /** Detaches a storage. One that cannot be detached stays registered, so that nothing is mounted over it. */
  async #detach(entry: Entry, attachment: Attachment): Promise<void> {
    const done = Promise.withResolvers<void>()
    entry.transition = done.promise
    try {
      await detach(this.#os, attachment, (path) => this.#isOtherStorage(path, attachment.mountPoint))
      this.#entries.delete(attachment.mountPoint)
    } finally {
      entry.transition = undefined
      done.resolve()
    }
  }
}

/** Whether a storage stays attached without references. */
function isKept({ shared }: Entry, { keep }: Attachment): boolean {
  return shared || keep
}
