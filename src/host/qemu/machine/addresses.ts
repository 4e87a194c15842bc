import { isPc, isQ35, type Machine, type MachineDevice, type Scalar } from '../../machine/machine.ts'
import { qemuId, specKey } from '../../spec/spec-key.ts'

/** QEMU's names of the PCI buses by their numbers. */
export function busesOf(machine: Machine): ReadonlyMap<number, string> {
  const behind = Object.entries(machine.devices).flatMap(([key, { properties }]) => {
    const number = properties.chassis ?? properties.chassis_nr
    return typeof number === 'number' ? [[number, qemuName(key)] as const] : []
  })
  return new Map([[0, isQ35(machine) ? 'pcie.0' : 'pci.0'], ...behind])
}

/** The properties by which QEMU puts a device where the machine has it. */
export function addressProperties(
  machine: Machine,
  buses: ReadonlyMap<number, string>,
  { address, model }: MachineDevice,
): Readonly<Record<string, Scalar>> {
  switch (address?.type) {
    case undefined:
      return {}
    case 'pci': {
      const { bus, function: func, slot } = address
      return { bus: buses.get(bus) ?? '', addr: `0x${slot.toString(16)}.${func}` }
    }
    case 'drive':
      if (model.startsWith('scsi'))
        return { bus: `${qemuName(address.controller)}.0`, 'scsi-id': address.target, lun: 0 }
      // Each port of AHCI is a bus.
      return isPc(machine)
        ? { bus: `ide.${address.bus}`, unit: address.unit }
        : { bus: `ide.${address.unit}` }
    case 'port': {
      const isUsb = machine.devices[address.controller]?.kind === 'usb-controller'
      const bus = `${qemuName(address.controller)}.0`
      return isUsb ? { bus, port: address.port } : { bus, nr: address.port }
    }
    default:
      return address satisfies never
  }
}

/** An id in QEMU begins with a letter. */
export function qemuName(key: string): string {
  return qemuId(specKey(key))
}
