import { refuse, shown } from '../../../spec/component-path.ts'
import {
  boolean,
  either,
  integer,
  list,
  object,
  oneOf,
  optional,
  type Read,
  type Shape,
} from '../../document/shape.ts'
import { bootOrder, catalogueName, pciAddress, serial } from '../../document/words.ts'
import { type Address, isPc, isQ35, type Scalar } from '../../machine.ts'
import { ensureController } from '../controllers-of.ts'
import {
  type Draft,
  type DraftDevice,
  digitsFor,
  type Part,
  pciAddressOf,
  present,
  withParts,
} from '../draft.ts'
import { feature } from '../feature.ts'

const MAX_DISKS = 1024

type Source =
  | { readonly kind: 'volume'; readonly name: string }
  | { readonly kind: 'file'; readonly path: string }

const volume: Shape<Source> = object({ kind: oneOf(['volume']), name: catalogueName })

const item = object({
  name: optional(catalogueName),
  type: optional(oneOf(['disk', 'cdrom'])),
  interface: optional(oneOf(['virtio-blk', 'virtio-scsi', 'ide', 'sata', 'nvme'])),
  source: optional(either(catalogueName, volume, (name): Source => ({ kind: 'volume', name }))),
  /** Whether a volume that is missing at a start leaves the drive empty. */
  optional: optional(boolean),
  format: optional(oneOf(['raw', 'qcow2'])),
  readonly: optional(boolean),
  serial: optional(serial),
  bootOrder: optional(bootOrder),
  cache: optional(oneOf(['none', 'writeback', 'writethrough', 'directsync', 'unsafe'])),
  io: optional(oneOf(['threads', 'native', 'io_uring'])),
  errorPolicy: optional(oneOf(['stop', 'report', 'ignore', 'enospace'])),
  snapshot: optional(boolean),
  limits: optional(
    object({
      iopsTotal: optional(integer(1, Number.MAX_SAFE_INTEGER)),
      bytesPerSecond: optional(integer(1, Number.MAX_SAFE_INTEGER, 'bytes')),
    }),
  ),
  /** Its number at the controller: 0 to 3 of IDE (hda to hdd), 0 to 5 of SATA, 0 to 255 of SCSI. */
  unit: optional(integer(0, 255)),
  address: optional(pciAddress),
})
export type DiskWish = Read<typeof item>
type Interface = NonNullable<DiskWish['interface']>

/** Units of an interface that has a controller. An IDE channel has two. */
const UNITS = { ide: 4, sata: 6, 'virtio-scsi': 256 } as const
const SECONDARY_MASTER = 2

export const storage = feature({
  name: 'storage',
  summary: 'disks and cdroms, by the names of volumes',
  shape: list(item, MAX_DISKS),
  expand: (draft, wishes = [], { at }) => {
    let prepared = draft
    const parts: Part[] = []
    const units = new Units()
    for (const [index, wish] of wishes.entries()) {
      // Explicit units are taken before any other is chosen.
      if (wish.unit !== undefined) units.take(interfaceOf(draft, wish), wish.unit, `${at}[${index}].unit`)
    }
    for (const [index, wish] of wishes.entries()) {
      const from = `${at}[${index}]`
      const type = wish.type ?? 'disk'
      const key = wish.name ?? `${type}${parts.filter(({ device }) => device.kind === type).length}`
      const bus = interfaceOf(prepared, wish)
      if (isControlled(bus)) {
        const [next, controller] = ensureController(prepared, bus === 'virtio-scsi' ? 'scsi' : bus, from)
        prepared = next
        const unit = wish.unit ?? units.free(bus, type, from)
        parts.push({
          key,
          device: controlledDisk(prepared, { wish, key, from }, driveAddress(bus, controller, unit)),
          backend: backendOf(wish, from),
        })
      } else
        parts.push({
          key,
          device: directDisk(prepared, { wish, key, from, index: parts.length }),
          backend: backendOf(wish, from),
        })
    }
    return withParts(prepared, parts)
  },
})

function isControlled(bus: Interface): bus is keyof typeof UNITS {
  return bus in UNITS
}

function interfaceOf(draft: Draft, wish: DiskWish): Interface {
  if (wish.interface !== undefined) return wish.interface
  if (wish.type !== 'cdrom') return draft.defaults.disk
  return isPc(draft) ? 'ide' : isQ35(draft) ? 'sata' : 'virtio-scsi'
}

/** The units of the first controller of each interface. */
class Units {
  readonly #taken = new Map<string, Set<number>>()

  take(bus: Interface, unit: number, at: string): void {
    if (!isControlled(bus)) refuse(at, `interface ${bus} has none`)
    if (unit >= UNITS[bus]) refuse(at, `${unit}: want 0 to ${UNITS[bus] - 1}`)
    const taken = this.#of(bus)
    if (taken.has(unit)) refuse(at, `${unit}: already used on ${bus}`)
    taken.add(unit)
  }

  /** The lowest free unit; a cdrom on IDE takes the place of old, the first one of the second channel, if it can. */
  free(bus: keyof typeof UNITS, type: 'disk' | 'cdrom', at: string): number {
    const taken = this.#of(bus)
    const order = Array.from({ length: UNITS[bus] }, (_, unit) => unit)
    const preferred = bus === 'ide' && type === 'cdrom' ? [SECONDARY_MASTER, ...order] : order
    const unit = preferred.find((candidate) => !taken.has(candidate))
    if (unit === undefined) return refuse(at, `interface ${bus} has ${UNITS[bus]} units, all in use`)
    taken.add(unit)
    return unit
  }

  #of(bus: string): Set<number> {
    const taken = this.#taken.get(bus) ?? new Set()
    this.#taken.set(bus, taken)
    return taken
  }
}

function driveAddress(bus: keyof typeof UNITS, controller: string, unit: number): Address {
  const place = { type: 'drive', controller, bus: 0, target: 0, unit: 0 } as const
  switch (bus) {
    case 'ide':
      return { ...place, bus: unit >> 1, unit: unit & 1 }
    case 'sata':
      return { ...place, unit }
    case 'virtio-scsi':
      return { ...place, target: unit }
    default:
      return bus satisfies never
  }
}

interface Disk {
  readonly wish: DiskWish
  readonly key: string
  readonly from: string
}

function controlledDisk(draft: Draft, disk: Disk, address: Address): DraftDevice {
  const { from, wish } = disk
  if (wish.address !== undefined) refuse(`${from}.address`, 'its controller has one, want a unit')
  const bus = interfaceOf(draft, wish) === 'virtio-scsi' ? 'scsi' : 'ide'
  const type = wish.type ?? 'disk'
  if (wish.readonly === true && bus === 'ide' && type === 'disk')
    refuse(`${from}.readonly`, 'true: a disk on ide or sata is written, want virtio-blk or virtio-scsi')
  const model = `${bus}-${type === 'cdrom' ? 'cd' : 'hd'}`
  return { kind: type, model, address, properties: propertiesOf(draft, disk), from }
}

function directDisk(draft: Draft, disk: Disk & { readonly index: number }): DraftDevice {
  const { from, wish } = disk
  const bus = interfaceOf(draft, wish)
  if (wish.type === 'cdrom') refuse(`${from}.interface`, `${bus}: a cdrom wants ide, sata or virtio-scsi`)
  if (bus === 'nvme' && draft.board.machine === 'microvm')
    refuse(`${from}.interface`, 'machine microvm has no nvme')
  const address = pciAddressOf(wish.address)
  const hasThread = bus === 'virtio-blk' && draft.iothreads > 0
  const iothread = hasThread ? { iothread: `iothread${disk.index % draft.iothreads}` } : {}
  return {
    ...{ kind: 'disk', model: bus, from, properties: { ...propertiesOf(draft, disk), ...iothread } },
    ...(address && { address }),
    ...(draft.board.machine === 'microvm' ? {} : { pci: 'hot' as const }),
  }
}

const SERIAL_LENGTH = 20

function propertiesOf(draft: Draft, { from, key, wish }: Disk): Record<string, Scalar> {
  const isScsi = interfaceOf(draft, wish) === 'virtio-scsi'
  if (!isScsi && (wish.serial?.length ?? 0) > SERIAL_LENGTH) {
    refuse(
      `${from}.serial`,
      `${shown(wish.serial ?? '')}: want at most ${SERIAL_LENGTH} characters, or virtio-scsi`,
    )
  }
  // NVMe has no error policy of its own.
  const policy = wish.errorPolicy === 'enospace' ? 'enospc' : wish.errorPolicy
  if (policy !== undefined && wish.interface === 'nvme')
    refuse(`${from}.errorPolicy`, 'interface nvme has none')
  return present<Scalar>({
    serial:
      wish.serial ?? (wish.type === 'cdrom' ? undefined : digitsFor(draft, key).slice(0, SERIAL_LENGTH)),
    bootindex: wish.bootOrder,
    werror: policy,
    rerror: policy === 'enospc' ? 'report' : policy,
  })
}

function backendOf(wish: DiskWish, from: string): NonNullable<Part['backend']> {
  const isCdrom = wish.type === 'cdrom'
  const { source } = wish
  if (source === undefined && !isCdrom) refuse(`${from}.source`, 'missing, want the name of a volume')
  if (isCdrom && wish.readonly === false) refuse(`${from}.readonly`, 'false: a cdrom is read-only')
  if (wish.optional !== undefined && !isCdrom) refuse(`${from}.optional`, 'only a cdrom may be empty')
  const { cache = 'writeback' } = wish
  if (wish.io === 'native' && cache !== 'none' && cache !== 'directsync')
    refuse(`${from}.io`, `native: wants cache none or directsync, has ${cache}`)
  if (wish.interface === 'nvme' && (cache === 'writethrough' || cache === 'directsync'))
    refuse(`${from}.cache`, `${cache}: nvme has a cache of its own, want none, writeback or unsafe`)
  const options = present<Scalar>({
    ...{
      format: wish.format,
      readOnly: (wish.readonly ?? isCdrom) || undefined,
      cache: wish.cache,
      io: wish.io,
    },
    ...{ snapshot: wish.snapshot, optional: wish.optional },
    ...{ iopsTotal: wish.limits?.iopsTotal, bytesPerSecond: wish.limits?.bytesPerSecond },
  })
  return { ...(source ?? { kind: 'empty' }), options }
}
