import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { Os } from '../../os/os.ts'
import type { DetailsDependencies } from './details.ts'

/** What the calls about the guest itself work with. */
export interface GuestDependencies extends DetailsDependencies {
  readonly os: Os
  /** What waiting for devices needs. */
  readonly hotplug: HotplugDependencies
}
