import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { Device } from '../../gen/agent.ts'
import { waitForPciDevice } from '../../hotplug/pci-device.ts'
import { waitForVfioGroup } from '../../hotplug/vfio-group.ts'
import { bindToVfio, loadVfio } from './bind-vfio.ts'
import type { DeviceDependencies, DeviceHandler } from './handler.ts'
import { parseVfioOptions } from './vfio-options.ts'

/** A passed-through PCI device that the guest's own kernel drives: it is waited for, and that is all (spec F.4). */
export const vfioPciGuestKernel: DeviceHandler = {
  withoutNode: true,
  async find(device, dependencies, signal) {
    return { node: undefined, pciAddresses: await guestAddresses(device, dependencies, signal) }
  },
}

/** Passed-through PCI devices of one IOMMU group, for a driver in the container (spec F.4). */
export const vfioPci: DeviceHandler = {
  async find(device, dependencies, signal) {
    const { os, log, hotplug } = dependencies
    const pciAddresses = await guestAddresses(device, dependencies, signal)
    const undo = new UndoList(log)
    try {
      await loadVfio(os, signal)
      let group: string | undefined
      for (const address of pciAddresses.values()) {
        const own = await bindToVfio(os.files, address, undo)
        if (group !== undefined && own !== group) {
          throw new AgentError('INTERNAL', `${address} is not in guest IOMMU group ${group}, but in ${own}`)
        }
        group = own
      }
      if (group === undefined) throw new AgentError('INTERNAL', 'failed to get VFIO group')
      const node = await waitForVfioGroup(hotplug, group, signal)
      return { node, keepsNodePath: true, pciAddresses, release: () => undo.run() }
    } catch (error) {
      await undo.run()
      throw error
    }
  },
}

async function guestAddresses(
  device: Device,
  { log, hotplug }: DeviceDependencies,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const { devices, skipped } = parseVfioOptions(device)
  for (const address of skipped) log.warn('passed-through device without place in the guest', { address })
  const found = await Promise.all(
    devices.map(async ({ hostAddress, guestPath }) => {
      return [hostAddress, await waitForPciDevice(hotplug, guestPath, signal)] as const
    }),
  )
  return new Map(found)
}
