import type { Device, VmSpec } from './spec.ts'
import type { SpecKey } from './spec-key.ts'

/**
 * The devices in the order in which the guest finds them: by their places, which no keys decide. Root ports come before
 * the devices in them.
 */
export function devicesInOrder(spec: VmSpec): readonly (readonly [SpecKey, Device])[] {
  // Keys are checked where a specification is made.
  const entries = Object.entries(spec.devices) as [SpecKey, Device][]
  const ranked = entries.map(([key, device]) => ({
    entry: [key, device] as const,
    place: placeNumber(spec, device),
    content: contentOf(spec, device),
  }))
  return ranked
    .sort((a, b) => a.place - b.place || (a.content < b.content ? -1 : 1))
    .map(({ entry }) => entry)
}

const FUNCTIONS = 8

/**
 * A number that stands for the place of a device: no other device of a checked specification has it, unless neither has
 * a place.
 */
export function placeNumber(spec: VmSpec, device: Device): number {
  const { port, slot = 0 } = placeOf(device)
  const bus = port === undefined ? undefined : spec.devices[port]
  // A port in a port is refused.
  if (bus?.kind === 'root-port') return placeNumber(spec, bus) + 1
  const func = device.kind === 'root-port' ? (device.func ?? 0) : 0
  return 2 * (slot * FUNCTIONS + func)
}

interface Place {
  readonly slot?: number | undefined
  readonly port?: SpecKey | undefined
}

function placeOf(device: Device): Place {
  return 'slot' in device ? device : {}
}

/** All of a device and its backend but the keys, to order devices without places. */
function contentOf({ backends }: VmSpec, device: Device): string {
  const { backend, ...own } = { backend: undefined, ...device }
  return JSON.stringify([own, backend === undefined ? undefined : backends[backend]])
}
