import { refuse } from '../../spec/component-path.ts'
import { isPc, isQ35 } from '../machine.ts'
import { type Draft, type DraftDevice, present, withParts } from './draft.ts'

export type ControllerType = 'ide' | 'sata' | 'scsi' | 'usb' | 'virtio-serial'

/** The draft with a controller of this type, which is the present first one or a new one, and its key. */
export function ensureController(draft: Draft, type: ControllerType, from: string): readonly [Draft, string] {
  const found = Object.entries(draft.devices).find(([, device]) => device.kind === `${type}-controller`)
  if (found !== undefined) return [draft, found[0]]
  const key = `${type}0`
  return [withParts(draft, [{ key, device: controllerOf(draft, type, from) }]), key]
}

/** A controller with QEMU's defaults. Throws INVALID_ARGUMENT when the board has none of the type. */
export function controllerOf(draft: Draft, type: ControllerType, from: string): DraftDevice {
  const { machine } = draft.board
  const kind = `${type}-controller`
  const virtio = machine === 'microvm' ? {} : { pci: 'cold' as const }
  switch (type) {
    case 'ide':
      if (!isPc(draft))
        refuse(from, `machine ${machine} has no IDE, want ${isQ35(draft) ? 'sata' : 'virtio-scsi'}`)
      return { ...board(kind, 'piix3-ide', from), address: { type: 'pci', bus: 0, slot: 1, function: 1 } }
    case 'sata':
      if (!isQ35(draft))
        refuse(from, `machine ${machine} has no SATA, want ${isPc(draft) ? 'ide' : 'virtio-scsi'}`)
      return { ...board(kind, 'ich9-ahci', from), address: { type: 'pci', bus: 0, slot: 31, function: 2 } }
    case 'usb':
      if (machine === 'microvm') refuse(from, 'machine microvm has no USB')
      if (isQ35(draft)) return { kind, model: 'qemu-xhci', properties: {}, from, pci: 'cold' }
      return {
        ...{ kind, model: 'piix3-usb-uhci', properties: {}, from },
        address: { type: 'pci', bus: 0, slot: 1, function: 2 },
      }
    case 'scsi': {
      const properties = present({ iothread: draft.iothreads > 0 ? 'iothread0' : undefined })
      return { kind, model: 'virtio-scsi', properties, from, ...virtio }
    }
    case 'virtio-serial':
      return {
        kind,
        model: 'virtio-serial',
        properties: { max_ports: draft.defaults.serialPorts },
        from,
        ...virtio,
      }
    default:
      return type satisfies never
  }
}

function board(kind: string, model: string, from: string): DraftDevice {
  return { kind, model, builtIn: true, properties: {}, from }
}

/** The number of the first port of a controller that no device has. */
export function freePort(draft: Draft, controller: string, first: number): number {
  const taken = new Set(
    Object.values(draft.devices).flatMap(({ address }) =>
      address?.type === 'port' && address.controller === controller ? [address.port] : [],
    ),
  )
  let port = first
  while (taken.has(port)) port += 1
  return port
}
