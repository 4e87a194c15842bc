import type { Logger } from '../../base/log.ts'
import type { Device } from '../../gen/agent.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { PciAddresses } from '../../oci/pci-environment.ts'
import type { Os } from '../../os/os.ts'
import type { CdiSettings } from './cdi/cdi.ts'

/** The dependencies of all device handlers. */
export interface DeviceDependencies {
  readonly os: Pick<Os, 'clock' | 'files' | 'tools'>
  readonly log: Logger
  /** What waiting for a hot-plugged device needs. */
  readonly hotplug: HotplugDependencies
  /** Where CDI specifications are, and how long they are waited for. */
  readonly cdi: CdiSettings
}

/** What the handlers of one request need. */
export interface RequestDependencies extends DeviceDependencies {
  /** Called before a PCI device is taken from its driver, with its address: its undo may be another agent's. */
  readonly beforeBind: (address: string) => void
}

/** A device, as the guest has it. */
export interface GuestDevice {
  /** The node that the container gets in place of the host's; undefined when the guest kernel uses the device. */
  readonly node: string | undefined
  /** Whether the container gets the node at its path in the guest, because the path has a meaning (a VFIO group). */
  readonly keepsNodePath?: boolean
  /** The guest's addresses of PCI devices, by the host's. */
  readonly pciAddresses?: PciAddresses
  /** Rebinds the device to its driver when the request fails later. Never throws. */
  readonly onFailure?: () => Promise<void>
}

/** The handler of one type of device. The fields that every type needs have been checked. */
export interface DeviceHandler {
  /** Set when the guest kernel uses the device, so that the container's spec does not name it. */
  readonly withoutNode?: true
  /** Waits for the device. When it throws or `signal` is aborted, it undoes all that it did. */
  waitFor(device: Device, dependencies: RequestDependencies, signal: AbortSignal): Promise<GuestDevice>
}
