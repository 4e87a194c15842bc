import type { LinuxDeviceCgroup, LinuxResources } from '../gen/oci.ts'

/** Stands for every number in a rule about devices. */
const ANY = -1n

/**
 * A request's limits whose device rules say "any" by −1 alone (behaviour spec, section D.2): in a message 0 is what is
 * not set, while in a rule that the guest makes it is the number of a device.
 */
export function withExplicitWildcards(resources: LinuxResources): LinuxResources {
  return { ...resources, Devices: resources.Devices.map(withExplicitWildcard) }
}

/** The same for one rule. */
export function withExplicitWildcard(rule: LinuxDeviceCgroup): LinuxDeviceCgroup {
  return { ...rule, Major: numberOrAny(rule.Major), Minor: numberOrAny(rule.Minor) }
}

function numberOrAny(number: bigint): bigint {
  return number > 0n ? number : ANY
}
