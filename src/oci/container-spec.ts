import { AgentError } from '../base/errors.ts'
import type { Linux, LinuxDevice, Mount, POSIXRlimit, Process, Spec } from '../gen/oci.ts'
import { type ResolvedEdits, withContainerEdits } from './cdi/apply-edits.ts'
import { type DeviceChoices, withGuestDevices } from './guest-devices.ts'
import { type GuestHooks, type SplitHooks, splitHooks } from './hooks.ts'
import { containerNamespaces, type SharedNamespaces } from './namespaces.ts'
import { withGuestPciAddresses } from './pci-environment.ts'
import { withNofile } from './rlimits.ts'
import { type SplitSysctls, splitSysctls } from './sysctls.ts'

/** What the guest decides about a container. */
export interface GuestChoices {
  readonly containerId: string
  /** The container's root in the guest, which replaces Root.Path. */
  readonly rootfs: string
  readonly namespaces: SharedNamespaces
  readonly devices: DeviceChoices
  /** Of devices that the spec asks for by their CDI names. */
  readonly deviceEdits: readonly ResolvedEdits[]
  /** Modes of device nodes in the guest by path, for devices that came without one. */
  readonly deviceModes: ReadonlyMap<string, number>
  /** Added to the container's own. */
  readonly hooks: GuestHooks
  /** RLIMIT_NOFILE where the host set none. */
  readonly nofile: POSIXRlimit
}

/** A spec ready for the runtime. */
export interface ContainerSpec {
  readonly spec: Spec & { readonly Process: Process; readonly Linux: Linux }
  readonly guestSysctls: SplitSysctls['guest']
  /** The hooks that the agent runs; those of `spec` are the runtime's. */
  readonly poststart: SplitHooks['poststart']
}

/**
 * The host's spec as this guest runs it (behaviour spec, sections D.2 to D.6 and F.1). Throws INTERNAL when it has no
 * process, root or linux part, INVALID_ARGUMENT for devices that it does not name.
 */
export function containerSpec(requested: Spec | undefined, guest: GuestChoices): ContainerSpec {
  const { root, ...complete } = completeSpec(requested)
  // What edits add is the guest's own: numbers and addresses of the host are translated before.
  const spec = withContainerEdits(
    {
      ...complete.spec,
      Process: {
        ...complete.process,
        Env: withGuestPciAddresses(complete.process.Env, guest.devices.pciAddresses),
      },
      Linux: withGuestDevices(complete.linux, guest.devices),
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
  // The sandbox's uts namespace has its name already; a runtime may set one only in a namespace it made.
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
        Namespaces: namespaces,
        Sysctl: { ...sysctls.container },
        CgroupsPath: cgroupsPath(linux.CgroupsPath, guest.containerId),
        Devices: linux.Devices.map((device) => withMode(device, guest.deviceModes)),
      },
    },
    guestSysctls: sysctls.guest,
    poststart: hooks.poststart,
  }
}

/** The parts of a spec without which there is no container. Throws INTERNAL for the first that is missing. */
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

/** Runtimes go by the options alone: a mount of type `bind` without one of these would not be a bind mount. */
function withBindOption(mount: Mount): Mount {
  const isBind = mount.options.includes('bind') || mount.options.includes('rbind')
  return mount.type === 'bind' && !isBind ? { ...mount, options: [...mount.options, 'rbind'] } : mount
}

/**
 * Where below the cgroup root a container's cgroup goes (behaviour spec, section D.6, cgroupfs only): always
 * absolute, because a runtime puts a relative path below its own cgroup. `slice:prefix:name`, the form meant for
 * systemd, becomes the folders `/slice/prefix/name`; a path that names nothing is the container's id: in the root cgroup a
 * container would be one with the agent, and die with it. `requested` was checked: no `..` is in it.
 */
export function cgroupsPath(requested: string, containerId: string): string {
  const names = requested
    .replaceAll(':', '/')
    .split('/')
    .filter((name) => name !== '' && name !== '.')
  return `/${names.length === 0 ? containerId : names.join('/')}`
}
