import { AgentError } from '../base/errors.ts'
import {
  type Linux,
  type LinuxDevice,
  type LinuxDeviceCgroup,
  type LinuxNamespace,
  LinuxResources,
  type Mount,
  type POSIXRlimit,
  type Process,
  type Spec,
} from '../gen/oci.ts'
import { type ResolvedEdits, withContainerEdits } from './cdi/apply-edits.ts'
import { type DeviceChoices, withGuestDevices } from './guest-devices.ts'
import { type GuestHooks, type SplitHooks, splitHooks } from './hooks.ts'
import { withGuestPciAddresses } from './pci-environment.ts'
import { withPids } from './resources.ts'
import { withNofile } from './rlimits.ts'
import { type SplitSysctls, splitSysctls } from './sysctls.ts'

export interface GuestChoices {
  readonly containerId: string
  /** The container's root in the guest, which replaces Root.Path. */
  readonly rootfs: string
  readonly namespaces: SharedNamespaces
  readonly devices: DeviceChoices
  readonly deviceEdits: readonly ResolvedEdits[]
  /** The modes of the guest's device nodes by path, for devices without a mode. */
  readonly deviceModes: ReadonlyMap<string, number>
  /** The hooks that are added to the container's own. */
  readonly hooks: GuestHooks
  /** The cgroup that the cgroups of all containers are below. */
  readonly cgroupParent: string
  /** RLIMIT_NOFILE for a process without one; undefined leaves it to the runtime. */
  readonly nofile: POSIXRlimit | undefined
  /** The limit of processes for a container without one; undefined for none. */
  readonly pids: bigint | undefined
}

export interface ContainerSpec {
  readonly spec: Spec & { readonly Process: Process; readonly Linux: Linux }
  readonly guestSysctls: SplitSysctls['guest']
  /** The hooks that the agent runs; those of `spec` are the runtime's. */
  readonly startContainer: SplitHooks['startContainer']
  readonly poststart: SplitHooks['poststart']
}

/**
 * Adapts the host's spec to this guest. Throws INTERNAL when it has no process, root or linux part, INVALID_ARGUMENT
 * for device updates that it does not have.
 */
export function containerSpec(requested: Spec | undefined, guest: GuestChoices): ContainerSpec {
  const { root, ...complete } = completeSpec(requested)
  // Edits come last because they contain the guest's own numbers, which must not be translated.
  const spec = withContainerEdits(
    {
      ...complete.spec,
      Process: {
        ...complete.process,
        Env: withGuestPciAddresses(complete.process.Env, guest.devices.pciAddresses),
      },
      Linux: withDeviceAccess(withGuestDevices(complete.linux, guest.devices), complete.process),
    },
    guest.deviceEdits,
  )
  const { Process: process, Linux: linux } = spec
  const namespaces = containerNamespaces(linux.Namespaces, guest.namespaces)
  const sysctls = splitSysctls(
    linux.Sysctl,
    namespaces.some(({ Type }) => Type === 'network'),
  )
  const hooks = splitHooks(spec.Hooks, guest.hooks)
  // The sandbox's uts namespace has a hostname already; a runtime may set one only in a namespace that it created.
  const joinsUts = namespaces.some(({ Type, Path }) => Type === 'uts' && Path !== '')
  return {
    spec: {
      ...spec,
      Hostname: joinsUts ? '' : spec.Hostname,
      Root: { ...root, Path: guest.rootfs },
      Process: {
        ...process,
        Rlimits: withNofile(process.Rlimits, guest.nofile),
      },
      Mounts: spec.Mounts.map(withBindOption),
      Hooks: hooks.runtime,
      Linux: {
        ...linux,
        Resources: withPids(linux.Resources, guest.pids),
        Namespaces: namespaces,
        Sysctl: { ...sysctls.container },
        CgroupsPath: cgroupsPath(linux.CgroupsPath, guest.containerId, guest.cgroupParent),
        Devices: linux.Devices.map((device) => withMode(device, guest.deviceModes)),
      },
    },
    guestSysctls: sysctls.guest,
    startContainer: hooks.startContainer,
    poststart: hooks.poststart,
  }
}

/** Throws INTERNAL for the first missing part. */
export function completeSpec(spec: Spec | undefined) {
  if (spec === undefined) throw missing('the request has no OCI spec')
  if (spec.Linux === undefined) throw new AgentError('INTERNAL', 'Spec does not contain linux field')
  if (spec.Root === undefined) throw missing('the OCI spec has no root')
  if (spec.Process === undefined) throw missing('the OCI spec has no process')
  return { spec, process: spec.Process, root: spec.Root, linux: spec.Linux }
}

function missing(what: string): AgentError {
  return new AgentError('INTERNAL', `EINVAL: Invalid argument: ${what}`)
}

function withMode(device: LinuxDevice, modes: ReadonlyMap<string, number>): LinuxDevice {
  return device.FileMode === 0 ? { ...device, FileMode: modes.get(device.Path) ?? 0 } : device
}

/** Adds the option `rbind` to a mount of type `bind` without one, because runtimes only look at the options. */
function withBindOption(mount: Mount): Mount {
  const isBind = mount.options.includes('bind') || mount.options.includes('rbind')
  return mount.type === 'bind' && !isBind ? { ...mount, options: [...mount.options, 'rbind'] } : mount
}

/**
 * The absolute cgroup path, because a runtime puts a relative path below its own cgroup. The systemd form
 * `slice:prefix:name` becomes `/slice/prefix/name`. An empty path becomes the container's id, because the removal kills
 * every process in the cgroup. `requested` has no `..`, which the caller has checked.
 */
export function cgroupsPath(requested: string, containerId: string, parent: string): string {
  const names = requested
    .replaceAll(':', '/')
    .split('/')
    .filter((name) => name !== '' && name !== '.')
  return `${parent}/${names.length === 0 ? containerId : names.join('/')}`
}

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

/** The namespaces that a container joins instead of getting its own. */
interface SharedNamespaces {
  /** The sandbox's ipc and uts namespaces; undefined gives the container its own. */
  readonly ipc: string | undefined
  readonly uts: string | undefined
  /** The pid namespace to join; undefined makes a new one. */
  readonly pid: string | undefined
  /** Whether the guest uses cgroup v2, with which the container also gets a cgroup namespace. */
  readonly cgroup: boolean
}

/**
 * The sandbox's ipc and uts replace the host's paths, and there is exactly one pid entry. The runtime refuses duplicates,
 * so only the first entry of a kind counts.
 */
export function containerNamespaces(
  requested: readonly LinuxNamespace[],
  shared: SharedNamespaces,
): LinuxNamespace[] {
  const byKind = new Map<string, LinuxNamespace>()
  for (const namespace of requested) {
    if (!byKind.has(namespace.Type)) byKind.set(namespace.Type, replaced(namespace, shared))
  }
  byKind.set('pid', { Type: 'pid', Path: shared.pid ?? '' })
  if (shared.cgroup && !byKind.has('cgroup')) byKind.set('cgroup', { Type: 'cgroup', Path: '' })
  return [...byKind.values()]
}

function replaced(namespace: LinuxNamespace, shared: SharedNamespaces): LinuxNamespace {
  switch (namespace.Type) {
    case 'ipc':
      return { Type: 'ipc', Path: shared.ipc ?? '' }
    case 'uts':
      return { Type: 'uts', Path: shared.uts ?? '' }
    default:
      return namespace
  }
}
