import { Backend, Device, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'

/** The specification with one more device; its backend, where it has one, is stored below the key that it names. */
export function withDevice(
  specification: Specification,
  key: string,
  { device, backend }: { readonly device: Device; readonly backend: Backend | undefined },
): Specification {
  const own = backend === undefined ? {} : { [device.backend]: backend }
  return {
    ...specification,
    devices: { ...specification.devices, [key]: device },
    backends: { ...specification.backends, ...own },
  }
}

/** The specification without some devices and without their backends. */
export function withoutDevices(specification: Specification, keys: readonly string[]): Specification {
  const lost = keys.flatMap((key) => specification.devices[key]?.backend ?? [])
  return {
    ...specification,
    devices: without(specification.devices, keys),
    backends: without(specification.backends, lost),
  }
}

function without<T>(record: Readonly<Record<string, T>>, keys: readonly string[]): Record<string, T> {
  return Object.fromEntries(Object.entries(record).filter(([key]) => !keys.includes(key)))
}

export function isEqualDevice(one: Device, other: Device): boolean {
  return isEqual(Device.encode(one).finish(), Device.encode(other).finish())
}

export function isEqualBackend(one: Backend | undefined, other: Backend | undefined): boolean {
  if (one === undefined || other === undefined) return one === other
  return isEqual(Backend.encode(one).finish(), Backend.encode(other).finish())
}

function isEqual(one: Uint8Array, other: Uint8Array): boolean {
  return Buffer.compare(one, other) === 0
}
