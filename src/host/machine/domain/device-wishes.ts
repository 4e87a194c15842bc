import { refuse } from '../../spec/component-path.ts'
import type { Domain } from './domain-shape.ts'

type Devices = NonNullable<Domain['devices']>
type DomainDisk = NonNullable<Devices['disks']>[number]
type DomainInterface = NonNullable<Devices['interfaces']>[number]

const INTERFACES = { ide: 'ide', sata: 'sata', scsi: 'virtio-scsi', virtio: 'virtio-blk' } as const

/** The wishes of `storage`. */
export function diskWishes(disks: readonly DomainDisk[], at: string): readonly unknown[] {
  return disks.map(({ device = 'disk', driver, source, target, type: _, ...own }, index) => {
    const { bootOrder, readonly, serial, snapshot, address } = own
    return {
      ...{ type: device, interface: INTERFACES[target.bus], bootOrder, readonly, serial, snapshot, address },
      ...{ format: driver?.type, cache: driver?.cache, io: driver?.io, errorPolicy: driver?.errorPolicy },
      source: source?.file === undefined ? undefined : { kind: 'file', path: source.file },
      optional: source?.startupPolicy === 'optional' ? true : undefined,
      unit: unitOf(target, `${at}[${index}].target.dev`),
    }
  })
}

/** The place that the name of a device says, such as 2 for hdc. Disks of virtio have no place but that on PCI. */
function unitOf({ bus, dev }: DomainDisk['target'], at: string): number | undefined {
  if (dev === undefined) return undefined
  const prefix = { ide: 'hd', sata: 'sd', scsi: 'sd', virtio: 'vd' }[bus]
  if (!dev.startsWith(prefix)) refuse(at, `${dev}: want ${prefix} for bus ${bus}`)
  if (bus === 'virtio') return undefined
  const letters = [...dev.slice(2)].map((letter) => letter.charCodeAt(0) - 'a'.charCodeAt(0))
  return letters.reduce((number, letter) => (number + 1) * 26 + letter, -1)
}

/** The wishes of `network`. */
export function networkWishes(interfaces: readonly DomainInterface[], at: string): readonly unknown[] {
  return interfaces.map(({ filterRef, mac, source = {}, target, type = 'bridge', ...own }, index) => {
    const names = { ...source, ethernet: target?.dev }
    const name = names[type]
    const odd = Object.entries(names).some(([each, value]) => each !== type && value !== undefined)
    const wanted = type === 'ethernet' ? 'target.dev' : type
    if (name === undefined || odd) refuse(`${at}[${index}].source`, `want ${wanted} alone`)
    const { address, bootOrder, model } = own
    const kind = type === 'ethernet' ? 'tap' : type
    return {
      ...{ source: { kind, name }, model, bootOrder, address, mac: mac?.address },
      filter: filterRef && [filterRef.filter],
    }
  })
}
