import type { Logger } from '../../base/log.ts'
import type { Device } from '../../gen/agent.ts'
import type { HotplugDependencies } from '../../hotplug/wait-for-device.ts'
import type { PciAddresses } from '../../oci/pci-environment.ts'
import type { Os } from '../../os/os.ts'
import type { CdiSettings } from './cdi/cdi.ts'

/** What devices work with. */
export interface DeviceDependencies {
  readonly os: Pick<Os, 'clock' | 'files' | 'tools'>
  readonly log: Logger
  /** How devices are waited for. */
  readonly hotplug: HotplugDependencies
  /** How devices are found by their CDI names. */
  readonly cdi: CdiSettings
}

/** What a handler has found. */
export interface FoundDevice {
  /** The node that the container gets in place of the host's; undefined when the guest's kernel uses the device. */
  readonly node: string | undefined
  /** The container finds the node at its own path in the guest: that tells something. */
  readonly keepsNodePath?: boolean
  /** Where PCI devices of the host are in the guest. */
  readonly pciAddresses?: PciAddresses
  /** Puts the device back where it was, for a request that fails later. Never throws. */
  readonly release?: () => Promise<void>
}

/** Takes care of one type of device (spec F). The request has been checked for what every type needs. */
export interface DeviceHandler {
  /** The guest's kernel uses what it finds: the container's spec says nothing about it. */
  readonly withoutNode?: true
  /** Waits for the device. When it throws, or `signal` is aborted, all is as before. */
  find(device: Device, dependencies: DeviceDependencies, signal: AbortSignal): Promise<FoundDevice>
}
