import { createHash } from 'node:crypto'
import { pathOf, refuse, shown } from '../../spec/component-path.ts'
import type { Defaults } from '../defaults.ts'
import type { PciWish } from '../document/words.ts'
import type { Machine, MachineBackend, MachineDevice, PciAddress } from '../machine.ts'

/** A machine whose devices may still lack their places. */
export interface Draft extends Omit<Machine, 'devices'> {
  readonly defaults: Defaults
  readonly devices: Readonly<Record<string, DraftDevice>>
}

export interface DraftDevice extends MachineDevice {
  /** The path in the document of what asks for it. */
  readonly from: string
  /** Whether it takes a place on PCI. `hot`: one from which it can be unplugged. */
  readonly pci?: 'cold' | 'hot' | undefined
}

export interface Part {
  readonly key: string
  readonly device: DraftDevice
  readonly backend?: Omit<MachineBackend, 'options'> & { readonly options?: MachineBackend['options'] }
}

/** The draft with further devices. Throws INVALID_ARGUMENT for a key that is another's. */
export function withParts(draft: Draft, parts: readonly Part[]): Draft {
  if (parts.length === 0) return draft
  const devices: Record<string, DraftDevice> = { ...draft.devices }
  const backends: Record<string, MachineBackend> = { ...draft.backends }
  for (const { key, device, backend } of parts) {
    const other = Object.hasOwn(devices, key) ? devices[key] : undefined
    if (other !== undefined) refuse(device.from, `name ${shown(key)}: already that of ${other.from}`)
    devices[key] = backend === undefined ? device : { ...device, backend: `${key}-backend` }
    if (backend !== undefined) backends[`${key}-backend`] = { options: {}, ...backend }
  }
  const clash = Object.keys(devices).find((key) => Object.hasOwn(backends, key))
  if (clash !== undefined)
    refuse(devices[clash]?.from ?? pathOf('devices', clash), 'name of a backend too, want another')
  return { ...draft, devices, backends }
}

/** The address on PCI of a wish. */
export function pciAddressOf(wish: PciWish | undefined): PciAddress | undefined {
  return wish && { type: 'pci', bus: wish.bus ?? 0, slot: wish.slot, function: wish.function ?? 0 }
}

/** An object without those of its fields that are undefined. */
export function present<Value>(fields: Readonly<Record<string, Value | undefined>>): Record<string, Value> {
  return Object.fromEntries(
    Object.entries(fields).filter((entry): entry is [string, Value] => entry[1] !== undefined),
  )
}

/** Hexadecimal digits that belong to this machine and this name, and are the same in each expansion. */
export function digitsFor({ uuid }: Pick<Machine, 'uuid'>, name: string): string {
  return createHash('sha256').update(`${uuid.toLowerCase()} ${name}`).digest('hex')
}

/** The draft with a note, once. */
export function withNote(draft: Draft, note: string): Draft {
  return draft.notes.includes(note) ? draft : { ...draft, notes: [...draft.notes, note] }
}
