import type { HostMachines } from '../documents/host-machines.ts'
import type { refuseServed } from './disk-in-use.ts'

/** What of this host the devices and disks of an instance depend on. */
export interface PlugParts {
  /** A context id that no instance has. */
  readonly chooseCid: (wanted: number) => number
  readonly machines?: HostMachines | undefined
  /** Instances that are about to start, with their documents. */
  readonly starting: Parameters<typeof refuseServed>[2]
  readonly moves?:
    | {
        readonly savedOn: (path: string) => Promise<string | undefined>
        /** Whether the instance is gone. To be called in a change. */
        settle(instance: { readonly key: string }, signal?: AbortSignal): Promise<boolean>
      }
    | undefined
}
