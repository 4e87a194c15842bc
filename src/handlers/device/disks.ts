import { AgentError } from '../../base/errors.ts'
import type { Device } from '../../gen/agent.ts'
import { waitForPciBlockDevice } from '../../hotplug/block-device.ts'
import { waitForNamedBlockDevice } from '../../hotplug/named-block-device.ts'
import { parsePciPath } from '../../hotplug/pci/pci-path.ts'
import { parseScsiAddress, waitForScsiDisk } from '../../hotplug/scsi-disk.ts'
import type { DeviceHandler } from './handler.ts'

/** A virtio-blk disk: `id` is its PCI path; when that is empty, `vm_path` is its node. */
export const blk: DeviceHandler = {
  async waitFor({ id, vmPath }, { hotplug }, signal) {
    const node =
      id === ''
        ? waitForNamedBlockDevice(hotplug, vmPath, signal)
        : waitForPciBlockDevice(hotplug, parsePciPath(id), signal)
    return { node: await node }
  },
}

/** A virtio-mmio disk or an NVDIMM: `vm_path` is its node. */
export const diskByNode: DeviceHandler = {
  async waitFor(device, { hotplug }, signal) {
    return { node: await waitForNamedBlockDevice(hotplug, required(device, 'vmPath', 'vm_path'), signal) }
  },
}

/** A disk behind a SCSI controller: `id` is `ID:LUN`. */
export const scsi: DeviceHandler = {
  async waitFor(device, { hotplug }, signal) {
    const address = parseScsiAddress(required(device, 'id', 'id'))
    return { node: await waitForScsiDisk(hotplug, address, signal) }
  },
}

function required(device: Device, field: 'id' | 'vmPath', name: string): string {
  if (device[field] !== '') return device[field]
  throw new AgentError(
    'INVALID_ARGUMENT',
    `device ${device.containerPath}: ${name} is empty, want one for type ${device.type}`,
  )
}
