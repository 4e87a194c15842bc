import type { Storage } from '../../gen/agent.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { Attachment } from './attachment.ts'
import type { Watch } from './drivers/watchable/watch.ts'
import type { HugePages } from './huge-pages.ts'
import type { MountDependencies } from './mount-storage.ts'

/** What storages work with. Mount points lie below `/run/kata-containers` in a guest (spec E.5). */
export interface StorageDependencies extends MountDependencies {
  readonly os: Pick<Os, 'blockDevices' | 'clock' | 'files' | 'mounts' | 'tools'>
  /** Holds a folder for each container, named by its id. */
  readonly bundlesRoot: string
  /** How devices are waited for. */
  readonly hotplug: HotplugDependencies
  readonly hugePages: HugePages
  /** Copies that follow what they were made of. */
  readonly watch: Watch
}

/** What a driver works with at one request. */
export interface StorageRequest extends StorageDependencies {
  /** The container that asks; undefined for the sandbox. */
  readonly owner: string | undefined
}

/**
 * Takes care of one kind of storage (spec E.3). The mount point has been checked, and no other call works on it
 * meanwhile.
 */
export interface StorageDriver {
  /**
   * Makes the storage usable at its mount point. When it throws, or `signal` is aborted, it leaves nothing behind.
   */
  attach(storage: Storage, request: StorageRequest, signal: AbortSignal): Promise<Attachment>
}
