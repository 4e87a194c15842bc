import type { HostMachines } from '../documents/host-machines.ts'
import type { refuseServed } from './disk-in-use.ts'

/** What of this host a device is plugged in with. */
export interface PlugParts {
  /** A context id that no instance has. */
  readonly chooseCid: (wanted: number) => number
  readonly machines?: HostMachines | undefined
  /** Instances that are about to start, with their documents. */
  readonly starting: Parameters<typeof refuseServed>[2]
}
