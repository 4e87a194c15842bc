import { AgentError } from '../base/errors.ts'
import type { Linux, LinuxDevice, Mount, POSIXRlimit, Process, Spec } from '../gen/oci.ts'
import { type ResolvedEdits, withContainerEdits } from './cdi/apply-edits.ts'
import { withDeviceAccess } from './device-access.ts'
import { type DeviceChoices, withGuestDevices } from './guest-devices.ts'
import { type GuestHooks, type SplitHooks, splitHooks } from './hooks.ts'
import { containerNamespaces, type SharedNamespaces } from './namespaces.ts'
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
