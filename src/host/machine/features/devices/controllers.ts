import { refuse } from '../../../spec/component-path.ts'
import { integer, list, object, oneOf, optional, type Read } from '../../document/shape.ts'
import { pciAddress } from '../../document/words.ts'
import { type Address, hasPci, isPc, isQ35, MAX_CONTROLLERS, placeName } from '../../machine.ts'
import { controllerOf } from '../controllers-of.ts'
import { type Draft, type DraftDevice, type Part, pciAddressOf, present, withParts } from '../draft.ts'
import { feature } from '../feature.ts'

const item = object({
  type: oneOf(['ide', 'sata', 'scsi', 'usb', 'virtio-serial', 'root-port', 'pci-bridge']),
  model: optional(oneOf(['piix3-ide', 'ich9-ahci', 'virtio-scsi', 'piix3-uhci', 'qemu-xhci'])),
  /** Of a virtio-serial controller. */
  ports: optional(integer(1, 31)),
  address: optional(pciAddress),
})
type ControllerWish = Read<typeof item>

export const controllers = feature({
  name: 'controllers',
  summary:
    'controllers of disks, USB and serial ports; root ports (q35) and bridges (pc), to plug devices into',
  shape: list(item, MAX_CONTROLLERS),
  expand: (draft, wishes = [], { at }) => {
    const own = boardControllers(draft, at)
    const parts: Part[] = [...own]
    for (const [index, wish] of wishes.entries()) {
      const from = `${at}[${index}]`
      const part = partOf(draft, wish, from, parts)
      if (part !== undefined) parts.push(part)
    }
    const hasPorts = wishes.some(({ type }) => type === 'root-port')
    return withParts(draft, [...parts, ...(isQ35(draft) && !hasPorts ? sparePorts(draft, at) : [])])
  },
})

/** What the board brings, at the places that cannot be changed. */
function boardControllers(draft: Draft, from: string): readonly Part[] {
  if (!hasPci(draft)) return []
  const type = isPc(draft) ? 'ide' : 'sata'
  return [{ key: `${type}0`, device: controllerOf(draft, type, from) }]
}

function sparePorts({ defaults }: Draft, from: string): readonly Part[] {
  return Array.from({ length: defaults.sparePorts }, (_, index) => ({
    key: `spare${index}`,
    device: rootPort(from),
  }))
}

export function rootPort(from: string): DraftDevice {
  return { kind: 'root-port', model: 'pcie-root-port', properties: {}, from }
}

/** Undefined for a controller of the board, which is there already. */
function partOf(draft: Draft, wish: ControllerWish, from: string, parts: readonly Part[]): Part | undefined {
  const { machine } = draft.board
  const explicit = pciAddressOf(wish.address)
  const number = parts.filter(({ device }) => device.kind === kindOf(wish.type)).length
  if (wish.ports !== undefined && wish.type !== 'virtio-serial')
    refuse(`${from}.ports`, `a controller of type ${wish.type} has none`)
  if (wish.type === 'root-port' || wish.type === 'pci-bridge') {
    if (wish.model !== undefined) refuse(`${from}.model`, `${wish.model}: a ${wish.type} has one model`)
    const isPort = wish.type === 'root-port'
    if (isPort ? !isQ35(draft) : !isPc(draft))
      refuse(`${from}.type`, `machine ${machine} has no ${wish.type}s`)
    const device = isPort ? rootPort(from) : { kind: 'pci-bridge', model: 'pci-bridge', properties: {}, from }
    return { key: `${isPort ? 'port' : 'bridge'}${number}`, device: placed(device, explicit) }
  }
  const device = controllerOf(draft, wish.type, from)
  const model = wish.model === 'piix3-uhci' ? 'piix3-usb-uhci' : wish.model
  if (model !== undefined && model !== device.model) {
    refuse(`${from}.model`, `${wish.model}: machine ${machine} has ${device.model}`)
  }
  if (device.address !== undefined) {
    if (explicit !== undefined && shown(explicit) !== shown(device.address)) {
      refuse(`${from}.address`, `${shown(explicit)}: the board has it at ${shown(device.address)}`)
    }
    if (device.builtIn === true && number === 1) return undefined
    if (number > 0) refuse(from, `machine ${machine} has one controller of type ${wish.type}`)
  }
  const properties = present({ ...device.properties, max_ports: wish.ports ?? device.properties.max_ports })
  return { key: `${wish.type}${number}`, device: { ...placed(device, explicit), properties } }
}

function placed(device: DraftDevice, address: Address | undefined): DraftDevice {
  return address === undefined ? device : { ...device, address }
}

function kindOf(type: ControllerWish['type']): string {
  return type === 'root-port' || type === 'pci-bridge' ? type : `${type}-controller`
}

function shown(address: Address): string {
  return address.type === 'pci' ? placeName(address) : address.type
}
