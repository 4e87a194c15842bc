import { type LinuxDeviceCgroup, LinuxResources } from '../gen/oci.ts'

/** The limits of a container after an update: empty fields of the update keep the stored value; lists are replaced whole. */
export function mergeResources(stored: LinuxResources | undefined, update: LinuxResources): LinuxResources {
  const before = stored ?? LinuxResources.create()
  return {
    ...merged(before, update),
    Memory: merged(before.Memory, update.Memory),
    CPU: merged(before.CPU, update.CPU),
    Pids: merged(before.Pids, update.Pids),
    BlockIO: merged(before.BlockIO, update.BlockIO),
    Network: merged(before.Network, update.Network),
  }
}

function merged<Part extends object | undefined>(before: Part, update: Part): Part {
  if (before === undefined || update === undefined) return update ?? before
  const given = Object.entries(update).filter(([, value]) => !isEmpty(value))
  return { ...before, ...Object.fromEntries(given) }
}

/** Proto3 does not tell an empty field from an absent one. */
function isEmpty(value: unknown): boolean {
  return Array.isArray(value) ? value.length === 0 : value === undefined || !value
}

/** The number that means any in a device rule. */
const ANY = -1n

/**
 * A request's limits with −1 for "any" in the device rules. In a message 0 means "not set", but in a rule of the guest
 * it is a device number.
 */
export function withExplicitWildcards(resources: LinuxResources): LinuxResources {
  return { ...resources, Devices: resources.Devices.map(withExplicitWildcard) }
}

export function withExplicitWildcard(rule: LinuxDeviceCgroup): LinuxDeviceCgroup {
  return { ...rule, Major: numberOrAny(rule.Major), Minor: numberOrAny(rule.Minor) }
}

function numberOrAny(number: bigint): bigint {
  return number > 0n ? number : ANY
}

/** The limits with one of processes: the host's if it named one, else `fallback`. A limit of 0 is none. */
export function withPids(
  resources: LinuxResources | undefined,
  fallback: bigint | undefined,
): LinuxResources | undefined {
  if (fallback === undefined || resources?.Pids !== undefined) return resources
  return { ...(resources ?? LinuxResources.create()), Pids: { Limit: fallback } }
}
