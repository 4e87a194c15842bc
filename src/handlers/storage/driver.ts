import type { Storage } from '../../gen/agent.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { StateStore } from '../../state/state-store.ts'
import type { Attachment, AttachmentData, AttachmentWork } from './attachment.ts'
import type { HugePages } from './drivers/huge-pages.ts'
import type { Watch } from './drivers/watchable/watch-roots.ts'
import type { MountDependencies } from './mount-storage.ts'

/** The dependencies of all storage drivers. In a guest, mount points lie below `/run/kata-containers`. */
export interface StorageDependencies extends MountDependencies {
  readonly os: Pick<Os, 'blockDevices' | 'clock' | 'files' | 'mounts' | 'tools'>
  /** The folder that holds one folder for each container, named by its id. */
  readonly bundlesRoot: string
  /** What waiting for a hot-plugged device needs. */
  readonly hotplug: HotplugDependencies
  /** Where what is attached outlives the agent. */
  readonly state: StateStore
  readonly events: Pick<EventLog, 'add'>
  readonly hugePages: HugePages
  /** State that all watched storages share. */
  readonly watch: Watch
}

/** The dependencies of a driver for one request. */
export interface StorageRequest extends StorageDependencies {
  /** The id of the container whose storage it is; undefined for the sandbox. */
  readonly owner: string | undefined
}

/**
 * The driver of one kind of storage. Its callers have checked the mount point and let no other call work on it at the
 * same time.
 */
export interface StorageDriver {
  /**
   * Makes the storage usable at its mount point. When it throws or `signal` is aborted, it undoes all that it did.
   */
  attach(storage: Storage, request: StorageRequest, signal: AbortSignal): Promise<Attachment>
  /**
   * Goes on with a storage that the previous agent attached, or began to: the work then undoes what was done. A driver
   * whose storages have no work does not have it.
   */
  restore?(storage: Storage, attached: AttachmentData, request: StorageRequest): Promise<AttachmentWork>
}
