import type { Logger } from '../../base/log.ts'
import type { Storage } from '../../gen/agent.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { Attachment } from './attachment.ts'

/** What storage drivers work with. */
export interface StorageDependencies {
  readonly os: Pick<Os, 'files' | 'mounts' | 'tools'>
  readonly log: Logger
  /** Mount points must lie below one of these (spec E.5), `/run/kata-containers` in a guest. */
  readonly allowedRoots: readonly string[]
  /** How devices are waited for. */
  readonly hotplug: HotplugDependencies
}

/**
 * Takes care of one kind of storage (spec E.3). The mount point has been checked, and no other call works on it
 * meanwhile.
 */
export interface StorageDriver {
  /**
   * Makes the storage usable at its mount point. When it throws, or `signal` is aborted, it leaves nothing behind.
   */
  attach(storage: Storage, dependencies: StorageDependencies, signal: AbortSignal): Promise<Attachment>
}
