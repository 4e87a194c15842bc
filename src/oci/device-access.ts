import {
  type Linux,
  type LinuxDevice,
  type LinuxDeviceCgroup,
  LinuxResources,
  type Process,
} from '../gen/oci.ts'

/**
 * Allows each node of `linux.devices`, and every device to a privileged container. Hosts send no rules, so a runtime would
 * allow only null, zero, random and terminals. The added rules come last and override those of the request.
 */
export function withDeviceAccess(linux: Linux, process: Pick<Process, 'Capabilities'>): Linux {
  const resources = linux.Resources ?? LinuxResources.create()
  const nodes = linux.Devices.filter(({ Type }) => Type === 'b' || Type === 'c').map(allowRule)
  const missing = nodes.filter((rule) => !resources.Devices.some((other) => isSame(rule, other)))
  const added = [...missing, ...(isPrivileged(linux, process) ? [ALLOW_ALL] : [])]
  if (added.length === 0) return linux
  return { ...linux, Resources: { ...resources, Devices: [...resources.Devices, ...added] } }
}

/** In a rule of the guest −1 means any number (see `withExplicitWildcards`). */
const ALLOW_ALL: LinuxDeviceCgroup = { Allow: true, Type: 'a', Major: -1n, Minor: -1n, Access: 'rwm' }

/** With these a process reaches every device without its node, by the kernel's memory or its own mounts. */
const DEVICE_CAPABILITIES = ['CAP_SYS_ADMIN', 'CAP_SYS_RAWIO', 'CAP_MKNOD']

/**
 * No field says that a container is privileged: containerd then gives it all of its own capabilities, and masks no path.
 * Some capabilities may be missing, because containerd itself may lack them.
 */
function isPrivileged(linux: Linux, { Capabilities: sets }: Pick<Process, 'Capabilities'>): boolean {
  if (linux.MaskedPaths.length + linux.ReadonlyPaths.length > 0) return false
  return DEVICE_CAPABILITIES.every((name) => sets?.Bounding.includes(name) && sets.Effective.includes(name))
}

function allowRule({ Type, Major, Minor }: LinuxDevice): LinuxDeviceCgroup {
  return { Allow: true, Type, Major, Minor, Access: 'rwm' }
}

function isSame(one: LinuxDeviceCgroup, other: LinuxDeviceCgroup): boolean {
  return (
    one.Allow === other.Allow &&
    one.Type === other.Type &&
    one.Major === other.Major &&
    one.Minor === other.Minor &&
    one.Access === other.Access
  )
}
