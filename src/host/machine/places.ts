import { refuse } from '../spec/component-path.ts'
import { rootPort } from './features/devices/controllers.ts'
import { type Draft, type DraftDevice, present } from './features/draft.ts'
import { hasPci, isPc, isQ35, type MachineDevice, type PciAddress, placeName } from './machine.ts'

const LAST_SLOT = 30
const BRIDGE_SLOTS = 31
const FUNCTIONS = 8
const LAST_BUS = 250

/**
 * The devices, each with its place on PCI. Explicit places are kept. On q35 a disk, a card and vsock get a root port, from
 * which they can be unplugged; on pc a bridge takes what the first bus has no slot for. Throws INVALID_ARGUMENT.
 */
export function placeDevices(draft: Draft): Readonly<Record<string, MachineDevice>> {
  const waiting = waitingDevices(draft)
  const buses = new Buses(draft)
  const devices: Record<string, DraftDevice> = { ...draft.devices }
  const add = (key: string, device: DraftDevice) => {
    if (Object.hasOwn(devices, key)) refuse(device.from, `name ${key}: already that of ${devices[key]?.from}`)
    devices[key] = device
  }
  for (const [key, device] of Object.entries(devices)) {
    if (isBus(device)) devices[key] = buses.numbered(device)
  }
  const hot = isQ35(draft) ? waiting.filter(([, { pci }]) => pci === 'hot') : []
  for (const [key, device] of hot) {
    const port = buses.numbered(rootPort(device.from))
    add(`${key}-port`, port)
    devices[key] = { ...device, address: { type: 'pci', bus: chassisOf(port), slot: 0, function: 0 } }
  }
  if (isPc(draft)) {
    const { count, first } = buses.missingBridges(waiting.length)
    for (let index = 0; index < count; index++) {
      // An error names the first device for which the bridge is there.
      const from = waiting[first + index * (BRIDGE_SLOTS - 1)]?.[1].from ?? 'spec'
      const numbered = buses.numbered({ kind: 'pci-bridge', model: 'pci-bridge', properties: {}, from })
      add(`bridge-${chassisOf(numbered)}`, numbered)
    }
  }
  const places = new Places(draft, devices)
  for (const [key, device] of Object.entries(devices)) {
    if (isBus(device) && device.address === undefined) devices[key] = places.placeBus(key, device)
  }
  for (const [key, device] of waiting) {
    const own = devices[key] ?? device
    if (own.address === undefined) devices[key] = places.place(key, own)
  }
  return finished(devices)
}

/** Those that still want a place, in the order of their ranks. */
function waitingDevices({
  defaults: { places },
  devices,
}: Draft): readonly (readonly [string, DraftDevice])[] {
  const rank = ({ kind }: DraftDevice) => {
    const [first, last] = [places.first.indexOf(kind), places.last.indexOf(kind)]
    return first >= 0 ? first : places.first.length + 1 + last
  }
  const waiting = Object.entries(devices).filter(
    ([, { address, pci }]) => pci !== undefined && address === undefined,
  )
  return waiting.sort(([, a], [, b]) => rank(a) - rank(b))
}

function isBus({ kind }: DraftDevice): boolean {
  return kind === 'root-port' || kind === 'pci-bridge'
}

function chassisOf({ properties }: DraftDevice): number {
  return Number(properties.chassis ?? properties.chassis_nr)
}

/** Numbers the buses behind ports and bridges. */
class Buses {
  readonly #draft: Draft
  #last = 0

  constructor(draft: Draft) {
    this.#draft = draft
  }

  numbered(device: DraftDevice): DraftDevice {
    this.#last += 1
    if (this.#last > LAST_BUS)
      refuse(device.from, `no free place on PCI, want at most ${LAST_BUS} ports and bridges`)
    const name = device.kind === 'root-port' ? 'chassis' : 'chassis_nr'
    return { ...device, properties: { ...device.properties, [name]: this.#last } }
  }

  /** How many bridges the devices want that find no slot on the first bus of pc, and which of them is the first. */
  missingBridges(waiting: number): { readonly count: number; readonly first: number } {
    const explicit = Object.values(this.#draft.devices)
    const taken = new Set(
      explicit.flatMap(({ address }) => (address?.type === 'pci' && address.bus === 0 ? [address.slot] : [])),
    )
    const unplaced = explicit.filter((device) => isBus(device) && device.address === undefined).length
    const { firstSlot } = this.#draft.defaults.places
    const slots = Array.from({ length: LAST_SLOT - firstSlot + 1 }, (_, index) => firstSlot + index)
    const free = slots.filter((slot) => !taken.has(slot)).length - unplaced
    return { count: Math.max(0, Math.ceil((waiting - free) / (BRIDGE_SLOTS - 1))), first: Math.max(0, free) }
  }
}

/** Which device has which place. */
class Places {
  readonly #draft: Draft
  readonly #taken = new Map<string, string>()
  readonly #slots = new Set<string>()
  readonly #bridges: readonly number[]
  #portSlot: number | undefined
  #portFunction = 0

  constructor(draft: Draft, devices: Readonly<Record<string, DraftDevice>>) {
    this.#draft = draft
    const buses = Object.values(devices).filter(isBus)
    this.#bridges = buses.filter(({ kind }) => kind === 'pci-bridge').map(chassisOf)
    const kinds = new Map(buses.map((device) => [chassisOf(device), device.kind]))
    const addressed = Object.entries(devices).flatMap(([key, { address, builtIn, from }]) =>
      address?.type === 'pci' ? [{ key, address, builtIn, from }] : [],
    )
    for (const { address, builtIn, from, key } of addressed) {
      if (!hasPci(draft)) refuse(`${from}.address`, 'machine microvm has no PCI')
      if (builtIn !== true) this.#checkPlace(address, kinds, from, devices[key]?.kind === 'usb-controller')
      this.#take(address, key, from)
    }
    for (const { address, from } of addressed) this.#checkFirstFunction(address, from)
  }

  /** Eight root ports share a slot. A bridge has one of its own. */
  placeBus(key: string, device: DraftDevice): DraftDevice {
    // A bridge could else be behind itself.
    if (device.kind === 'pci-bridge') return this.#placeAt(key, device, this.#freeSlot(0))
    if (this.#portSlot === undefined || this.#portFunction === FUNCTIONS) {
      this.#portSlot = this.#freeSlot(0) ?? this.#noPlace(device)
      this.#portFunction = 0
    }
    const address = { type: 'pci', bus: 0, slot: this.#portSlot, function: this.#portFunction++ } as const
    this.#take(address, key, device.from)
    return { ...device, address }
  }

  place(key: string, device: DraftDevice): DraftDevice {
    const { screenSlot } = this.#draft.defaults.places
    const screen = device.kind === 'video' ? this.#freeSlot(0, screenSlot, screenSlot) : undefined
    return this.#placeAt(key, device, screen ?? this.#freeSlot(0) ?? this.#behindBridge())
  }

  /** Takes a slot of the first bus, or the place. */
  #placeAt(key: string, device: DraftDevice, place: number | PciAddress | undefined): DraftDevice {
    if (place === undefined) return this.#noPlace(device)
    const address =
      typeof place === 'number' ? ({ type: 'pci', bus: 0, slot: place, function: 0 } as const) : place
    this.#take(address, key, device.from)
    return { ...device, address }
  }

  #behindBridge(): PciAddress | undefined {
    for (const bus of this.#bridges) {
      const slot = this.#freeSlot(bus, 1, BRIDGE_SLOTS)
      if (slot !== undefined) return { type: 'pci', bus, slot, function: 0 }
    }
    return undefined
  }

  #freeSlot(
    bus: number,
    first = this.#draft.defaults.places.firstSlot,
    last = LAST_SLOT,
  ): number | undefined {
    for (let slot = first; slot <= last; slot++) if (!this.#slots.has(`${bus}:${slot}`)) return slot
    return undefined
  }

  #take(address: PciAddress, key: string, from: string): void {
    const name = placeName(address)
    const other = this.#taken.get(name)
    if (other !== undefined) refuse(`${from}.address`, `${name}: already that of ${other}`)
    this.#taken.set(name, key)
    this.#slots.add(`${address.bus}:${address.slot}`)
  }

  #checkPlace(address: PciAddress, kinds: ReadonlyMap<number, string>, from: string, isUsb: boolean): void {
    const at = `${from}.address`
    const { bus, slot } = address
    if (bus === 0) {
      const own = isPc(this.#draft) ? 1 : 31
      // USB of pc is a function of the board's own slot.
      if (slot === 0 || (slot === own && !(isUsb && isPc(this.#draft))))
        refuse(at, `${placeName(address)}: the board's own slot`)
      return
    }
    const kind = kinds.get(bus)
    if (kind === undefined) refuse(at, `${placeName(address)}: no port or bridge has bus ${bus}`)
    if (kind === 'root-port' && slot !== 0) refuse(at, `${placeName(address)}: a root port has slot 0 only`)
    if (kind === 'pci-bridge' && slot === 0)
      refuse(at, `${placeName(address)}: a bridge has slots 1 to ${BRIDGE_SLOTS}`)
  }

  /** A guest looks at the other functions of a slot only where function 0 is there. The board's own slot has it. */
  #checkFirstFunction(address: PciAddress, from: string): void {
    const isBoards = address.bus === 0 && address.slot === (isPc(this.#draft) ? 1 : 31)
    if (address.function === 0 || isBoards || this.#taken.has(placeName({ ...address, function: 0 }))) return
    refuse(`${from}.address`, `${placeName(address)}: no device has function 0 of this slot`)
  }

  #noPlace({ from }: DraftDevice): never {
    const { firstSlot } = this.#draft.defaults.places
    return refuse(
      from,
      `no free place on PCI, want fewer devices: bus 0 has slots ${firstSlot} to ${LAST_SLOT} for them and their ports`,
    )
  }
}

/** Without what only the expansion needs. Function 0 of a slot says that the slot has others. */
function finished(devices: Readonly<Record<string, DraftDevice>>): Readonly<Record<string, MachineDevice>> {
  const shared = new Set(
    Object.values(devices).flatMap(({ address, builtIn }) =>
      address?.type === 'pci' && address.function > 0 && builtIn !== true
        ? [`${address.bus}:${address.slot}`]
        : [],
    ),
  )
  return Object.fromEntries(
    Object.entries(devices).map(([key, { from: _, pci: __, ...device }]) => {
      const { address } = device
      const isFirst =
        address?.type === 'pci' && address.function === 0 && shared.has(`${address.bus}:${address.slot}`)
      const properties = { ...device.properties, ...present({ multifunction: isFirst || undefined }) }
      return [key, { ...device, properties }]
    }),
  )
}
