import { AgentError } from '../../base/errors.ts'
import { undoOnFailure } from '../../base/undo.ts'
import type { Device } from '../../gen/agent.ts'
import { waitForPciDevice } from '../../hotplug/pci/pci-device.ts'
import { type PciPath, parsePciPath } from '../../hotplug/pci/pci-path.ts'
import { waitForVfioGroup } from '../../hotplug/vfio-group.ts'
import { bindToVfio, loadVfio } from './bind-vfio.ts'
import type { DeviceContext, DeviceHandler } from './handler.ts'

/** A passed-through PCI device with a driver of the guest kernel: the handler only waits for it. */
export const vfioPciGuestKernel: DeviceHandler = {
  withoutNode: true,
  async waitFor(device, dependencies, signal) {
    return { node: undefined, pciAddresses: await waitForGuestAddresses(device, dependencies, signal) }
  },
}

/** Passed-through PCI devices of one IOMMU group, for a driver in the container. */
export const vfioPci: DeviceHandler = {
  async waitFor(device, dependencies, signal) {
    const { os, log, hotplug, beforeBind } = dependencies
    const pciAddresses = await waitForGuestAddresses(device, dependencies, signal)
    return undoOnFailure(log, async (onFailure) => {
      await loadVfio(os, signal)
      let group: string | undefined
      for (const address of pciAddresses.values()) {
        const ownGroup = await bindToVfio(os.files, address, { beforeBind, onFailure })
        if (group !== undefined && ownGroup !== group) {
          throw new AgentError(
            'INTERNAL',
            `PCI device ${address}: in guest IOMMU group ${ownGroup}, want ${group}`,
          )
        }
        group = ownGroup
      }
      if (group === undefined) throw new AgentError('INTERNAL', 'failed to get VFIO group')
      const node = await waitForVfioGroup(hotplug, group, signal)
      return { node, keepsNodePath: true, pciAddresses, onFailure: () => onFailure.run() }
    })
  },
}

async function waitForGuestAddresses(
  device: Device,
  { log, hotplug }: DeviceContext,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const { devices, skipped } = parseVfioOptions(device)
  for (const address of skipped) log.warn('passed-through device has no path in the guest', { address })
  const found = await Promise.all(
    devices.map(async ({ hostAddress, guestPath }) => {
      return [hostAddress, await waitForPciDevice(hotplug, guestPath, signal)] as const
    }),
  )
  return new Map(found)
}

interface VfioOption {
  /** `0000:1a:02.3`, in lower case. */
  readonly hostAddress: string
  readonly guestPath: PciPath
}

/** Parses `<host address>=<guest PCI path>`; `skipped` addresses have no path. Throws INVALID_ARGUMENT. */
function parseVfioOptions({ options, containerPath }: Device): {
  readonly devices: readonly VfioOption[]
  readonly skipped: readonly string[]
} {
  const devices: VfioOption[] = []
  const skipped: string[] = []
  for (const option of options) {
    const [, address, path] = /^([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])=(.*)$/i.exec(option) ?? []
    if (address === undefined || path === undefined) {
      const text = `device ${containerPath}: Malformed VFIO PCI option: "${option}"`
      throw new AgentError('INVALID_ARGUMENT', text)
    }
    if (path === '') skipped.push(address)
    else devices.push({ hostAddress: address.toLowerCase(), guestPath: parsePciPath(path) })
  }
  return { devices, skipped }
}
