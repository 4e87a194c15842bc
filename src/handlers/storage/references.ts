import { Changes } from '../../base/changes.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { StoragePayload_Phase as Phase, type StoragePayload } from '../../gen/state/storage.ts'
import { KINDS, UnreadableState } from '../../state/state-store.ts'
import { type Attachment, type AttachmentData, type AttachmentWork, detach, isPresent } from './attachment.ts'
import type { StorageContext } from './driver.ts'
import type { StorageGroup } from './drivers/image/layer-options.ts'
import { haveSameOptions, refuseOtherStorage, warnOfOptions } from './identity.ts'
import { unmountTree } from './mount-storage.ts'

const FOLDER = 'storages'

interface Entry {
  /** The name of its record. */
  readonly name: string
  references: number
  /** Whether a request marked it as shared; it then stays attached until the sandbox ends. */
  shared: boolean
  /** The request that attached it and its container, which is undefined for the sandbox. */
  requested: StorageGroup
  owner: string | undefined
  /** Whether a request with other options was logged. */
  warned: boolean
  attachment: Attachment | undefined
  /** Whether it is being attached or detached; other calls wait for that. */
  isInTransition: boolean
}

/** A storage in the answer of ListMounts. */
export interface StorageView {
  readonly mountPoint: string
  readonly driver: string
  readonly source: string
  readonly fstype: string
  readonly device: string | undefined
  readonly references: number
  readonly shared: boolean
  readonly state: 'attaching' | 'attached' | 'detaching'
}

/** A request for one reference; `attach` is called when the mount point has no attached storage. */
export interface Acquisition {
  readonly mountPoint: string
  readonly shared: boolean
  readonly requested: StorageGroup
  readonly owner: string | undefined
  readonly attach: () => Promise<Attachment>
  /** Waits for the disk and returns its node; undefined when the storage is not a disk. */
  readonly deviceOf: (() => Promise<string>) | undefined
}

type Parts = Pick<StorageContext, 'os' | 'log' | 'state' | 'events'>

/** Counts the references to each mount point: the first one attaches the storage, releasing the last one detaches it. */
export class StorageReferences {
  readonly #entries = new Map<string, Entry>()
  readonly #changes = new Changes()
  readonly #parts: Parts
  #lastName = 0

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /**
   * Returns whether this call attached the storage. While another call attaches or detaches it, this one waits, and
   * attaches the storage itself if the other call failed. Throws FAILED_PRECONDITION when the attached storage is
   * unusable or another one, what `attach` and detaching throw, or the abort reason; the call then holds no reference.
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
      if (entry?.isInTransition === true) {
        await this.#changes.next(signal)
      } else if (entry?.attachment !== undefined && entry.references > 0) {
        if (acquire.shared && !entry.shared) {
          entry.shared = true
          this.#save(acquire.mountPoint, entry, Phase.ATTACHED)
        }
        entry.references += 1
        return 'reused'
      } else if (entry?.attachment !== undefined && !isKept(entry, entry.attachment)) {
        // An earlier detach failed, and the mount point may hold another storage than the requested one.
        await this.#detach(entry, entry.attachment)
      } else {
        return this.#attach(acquire, entry)
      }
    }
  }

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
    this.#save(mountPoint, entry, Phase.ATTACHED)
    warnOfOptions(this.#parts.log, entry.requested, requested)
  }

  /**
   * A storage that is shared or has `keep` stays attached without references, unless the request that attached it
   * failed (`newlyAttached`). Throws INTERNAL when there is no reference, and what detaching throws.
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
   * Detaches storages without references, the newest first. Plain directories are only forgotten: their content is
   * removed with the folder that contains them. Tries all, then throws the first error.
   */
  async clear(): Promise<void> {
    const failures: unknown[] = []
    for (const entry of [...this.#entries.values()].reverse()) {
      const { attachment, references, isInTransition } = entry
      if (attachment === undefined || references > 0 || isInTransition) continue
      if (attachment.kind === 'directory') this.#forget(attachment.mountPoint, entry)
      else await this.#detach(entry, attachment).catch((error) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
  }

  /** In the order of the first requests. */
  list(): readonly StorageView[] {
    return [...this.#entries].map(
      ([mountPoint, { references, shared, requested, attachment, isInTransition }]) => {
        const state = !isInTransition ? 'attached' : attachment === undefined ? 'attaching' : 'detaching'
        const [{ driver, source, fstype }] = requested
        return { mountPoint, driver, source, fstype, device: attachment?.device, references, shared, state }
      },
    )
  }

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

  /** Attaches the storage, or reuses `unused`, an entry without references, unless its mount is known to be gone. */
  async #attach(
    { mountPoint, shared, requested, owner, attach }: Acquisition,
    unused: Entry | undefined,
  ): Promise<'attached' | 'reused'> {
    const name = unused?.name ?? this.#nextName()
    const fresh = { name, references: 1, shared, requested, owner, warned: false, attachment: undefined }
    const entry: Entry = { ...fresh, isInTransition: true }
    this.#entries.set(mountPoint, entry)
    let previous = unused
    try {
      // The mount may have been removed from outside.
      if (unused?.attachment !== undefined && (await isPresent(this.#parts.os, unused.attachment))) {
        const { attachment, requested: first, owner: firstOwner, warned } = unused
        const kept = { attachment, requested: first, owner: firstOwner, warned }
        Object.assign(entry, { ...kept, shared: shared || unused.shared })
        if (entry.shared !== unused.shared) this.#save(mountPoint, entry, Phase.ATTACHED)
        return 'reused'
      }
      previous = undefined
      await unused?.attachment?.stop?.()
      await unused?.attachment?.onRemove?.()
      this.#save(mountPoint, entry, Phase.ATTACHING)
      entry.attachment = await attach()
      this.#save(mountPoint, entry, Phase.ATTACHED)
      this.#tell('attached', mountPoint, entry)
      return 'attached'
    } catch (error) {
      if (previous === undefined) this.#forget(mountPoint, entry)
      else this.#entries.set(mountPoint, previous)
      throw error
    } finally {
      entry.isInTransition = false
      this.#changes.announce()
    }
  }

  /** A storage that cannot be detached stays registered, so that nothing is mounted over it. */
  async #detach(entry: Entry, attachment: Attachment): Promise<void> {
    entry.isInTransition = true
    try {
      this.#save(attachment.mountPoint, entry, Phase.DETACHING)
      await detach(this.#parts.os, attachment, (path) => this.#isOtherStorage(path, attachment.mountPoint))
      this.#forget(attachment.mountPoint, entry)
      this.#tell('detached', attachment.mountPoint, entry)
    } finally {
      entry.isInTransition = false
      this.#changes.announce()
    }
  }

  /**
   * Restores the previous agent's storages; `references` counts the restored users of each mount point. Detaches what
   * was half attached or half detached, and what has no reference and is not kept. Throws UnreadableState.
   */
  async restore(
    references: ReadonlyMap<string, number>,
    workOf: (payload: StoragePayload, data: AttachmentData) => Promise<AttachmentWork>,
  ): Promise<void> {
    const unwanted: { readonly entry: Entry; readonly attachment: Attachment; readonly isWhole: boolean }[] =
      []
    const saved = this.#parts.state.list(FOLDER).map((name) => {
      return { name, payload: this.#parts.state.require(KINDS.storage, `${FOLDER}/${name}`) }
    })
    for (const { name, payload } of saved) {
      const { mountPoint, shared, warned, owner } = payload
      const [first, ...rest] = payload.requested
      if (first === undefined) throw new UnreadableState('INTERNAL', `state ${FOLDER}/${name}: incomplete`)
      const data = dataOf(payload)
      const attachment = { ...data, ...(await workOf(payload, data)) }
      const count = references.get(mountPoint) ?? 0
      const entry: Entry = {
        name,
        references: count,
        shared,
        warned,
        attachment,
        isInTransition: false,
        requested: [first, ...rest],
        owner: owner === '' ? undefined : owner,
      }
      this.#entries.set(mountPoint, entry)
      this.#lastName = Math.max(this.#lastName, Number(name))
      const isWhole = payload.phase !== Phase.ATTACHING
      const isWanted = payload.phase === Phase.ATTACHED && (count > 0 || isKept(entry, attachment))
      if (!isWanted) unwanted.push({ entry, attachment, isWhole })
    }
    for (const { entry, attachment, isWhole } of unwanted.reverse()) {
      const { mountPoint } = attachment
      const removed = isWhole ? this.#detach(entry, attachment) : this.#undoAttach(entry, attachment)
      await removed.catch((error) =>
        this.#parts.log.warn('storage not detached', { mountPoint, error: messageOf(error) }),
      )
    }
  }

  /** Undoes an interrupted attach, of which any number of steps may be done. */
  async #undoAttach(entry: Entry, { mountPoint, onRemove }: Attachment): Promise<void> {
    await unmountTree(this.#parts.os.mounts, mountPoint)
    // Fails for a mount point that existed before: it has content or is no directory.
    await this.#parts.os.files.removeDirectory(mountPoint).catch(() => {})
    await onRemove?.()
    this.#forget(mountPoint, entry)
  }

  #nextName(): string {
    this.#lastName += 1
    return `${this.#lastName}`
  }

  #save(mountPoint: string, entry: Entry, phase: Phase): void {
    const { name, requested, owner = '', shared, warned, attachment } = entry
    this.#parts.state.write(KINDS.storage, `${FOLDER}/${name}`, {
      mountPoint,
      requested: [...requested],
      owner,
      shared,
      warned,
      phase,
      kind: attachment?.kind ?? '',
      keep: attachment?.keep ?? false,
      device: attachment?.device ?? '',
      undo: { ...attachment?.undo },
    })
  }

  #tell(action: 'attached' | 'detached', mountPoint: string, { requested }: Entry): void {
    this.#parts.events.add({ storageChanged: { action, mountPoint, driver: requested[0].driver } })
  }

  #forget(mountPoint: string, { name }: Entry): void {
    this.#entries.delete(mountPoint)
    this.#parts.state.remove(`${FOLDER}/${name}`)
  }
}

/** The record of an interrupted attach has no kind yet. It counts as a mount, whose undo covers most other kinds. */
function dataOf({ mountPoint, kind, keep, device, undo }: StoragePayload): AttachmentData {
  const known = ATTACHMENT_KINDS.find((name) => name === kind) ?? 'mount'
  return { mountPoint, kind: known, keep, undo, ...(device === '' ? {} : { device }) }
}

const ATTACHMENT_KINDS = ['mount', 'directory', 'copy', 'existing'] as const

function isKept({ shared }: Entry, { keep }: Attachment): boolean {
  return shared || keep
}
