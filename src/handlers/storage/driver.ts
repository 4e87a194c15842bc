import type { Storage } from '../../gen/agent.ts'
import type { Hotplug } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { StateStore } from '../../state/state-store.ts'
import type { Attachment, AttachmentData, AttachmentWork } from './attachment.ts'
import type { HugePages } from './drivers/huge-pages.ts'
import type { Watch } from './drivers/watchable/watch-roots.ts'
import type { MountContext } from './mount-storage.ts'

export interface StorageContext extends MountContext {
  readonly os: Pick<Os, 'blockDevices' | 'clock' | 'files' | 'mounts' | 'tools'>
  /** The folder that holds one folder for each container, named by its id. */
  readonly bundlesRoot: string
  readonly hotplug: Hotplug
  readonly state: StateStore
  readonly events: Pick<EventLog, 'add'>
  readonly hugePages: HugePages
  readonly watch: Watch
}

export interface StorageRequest extends StorageContext {
  /** The container's id; undefined for a storage of the sandbox. */
  readonly owner: string | undefined
}

/** The driver of one kind of storage. The caller checks the mount point, and makes one call at a time for each mount point. */
export interface StorageDriver {
  /** Makes the storage usable at its mount point. Undoes all steps when it throws or `signal` is aborted. */
  attach(storage: Storage, request: StorageRequest, signal: AbortSignal): Promise<Attachment>
  /** Restores a storage that the previous agent attached or began to attach. Absent in drivers without work. */
  restore?(storage: Storage, attached: AttachmentData, request: StorageRequest): Promise<AttachmentWork>
}
