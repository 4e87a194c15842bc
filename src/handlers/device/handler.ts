import type { Logger } from '../../base/log.ts'
import type { Device } from '../../gen/agent.ts'
import type { Hotplug } from '../../hotplug/wait-for-device.ts'
import type { PciAddresses } from '../../oci/pci-environment.ts'
import type { Os } from '../../os/os.ts'
import type { CdiSettings } from './cdi/cdi.ts'

export interface DeviceContext {
  readonly os: Pick<Os, 'clock' | 'files' | 'tools'>
  readonly log: Logger
  readonly hotplug: Hotplug
  readonly cdi: CdiSettings
}

export interface DeviceRequestContext extends DeviceContext {
  /** Called with a PCI device's address before the device is taken from its driver: the next agent may undo that. */
  readonly beforeBind: (address: string) => void
}

export interface GuestDevice {
  /** The node that the container gets in place of the host's; undefined when the guest kernel uses the device. */
  readonly node: string | undefined
  /** Whether the container gets the node at its path in the guest, because the path has a meaning (a VFIO group). */
  readonly keepsNodePath?: boolean
  /** The guest's PCI addresses, by the host's. */
  readonly pciAddresses?: PciAddresses
  /** Rebinds the device to its driver when the request fails later. Never throws. */
  readonly onFailure?: () => Promise<void>
}

/** Callers check the fields that every type needs. */
export interface DeviceHandler {
  /** Set when the guest kernel uses the device, so that the container's spec does not name it. */
  readonly withoutNode?: true
  /** Undoes all steps when it throws or `signal` is aborted. */
  waitFor(device: Device, dependencies: DeviceRequestContext, signal: AbortSignal): Promise<GuestDevice>
}
