import type {
  Hook,
  Hooks,
  Linux,
  LinuxBlockIO,
  LinuxCapabilities,
  LinuxDevice,
  LinuxDeviceCgroup,
  LinuxIDMapping,
  LinuxNamespace,
  LinuxNetwork,
  LinuxResources,
  LinuxSeccomp,
  LinuxSeccompArg,
  LinuxSyscall,
  LinuxThrottleDevice,
  LinuxWeightDevice,
  Mount,
  Process,
  Spec,
} from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'

/**
 * The version of the OCI runtime specification that every `config.json` names, whatever the request says: a request has
 * no field that is newer, and a runtime may refuse versions newer than its own.
 */
export const OCI_VERSION = '1.0.2'

/**
 * The runtime's `config.json` for a checked spec message (behaviour spec, section D.2): a plain conversion without any
 * decisions.
 */
export function runtimeConfig(spec: Spec): Json {
  return {
    ociVersion: OCI_VERSION,
    ...omitEmpty({
      process: spec.Process && processConfig(spec.Process),
      root: spec.Root && { path: spec.Root.Path, readonly: spec.Root.Readonly },
      hostname: spec.Hostname,
      mounts: spec.Mounts.map(mountConfig),
      hooks: spec.Hooks && hooksConfig(spec.Hooks),
      annotations: spec.Annotations,
      linux: spec.Linux && linuxConfig(spec.Linux),
    }),
  }
}

function mountConfig(mount: Mount): Json {
  const { destination, source, type, options } = mount
  return { destination, ...omitEmpty({ source, type, options }) }
}

function hooksConfig(hooks: Hooks): Json {
  return omitEmpty({
    prestart: hooks.Prestart.map(hookConfig),
    createRuntime: hooks.CreateRuntime.map(hookConfig),
    createContainer: hooks.CreateContainer.map(hookConfig),
    startContainer: hooks.StartContainer.map(hookConfig),
    poststart: hooks.Poststart.map(hookConfig),
    poststop: hooks.Poststop.map(hookConfig),
  })
}

function hookConfig(hook: Hook): Json {
  const timeout = hook.Timeout > 0n ? hook.Timeout : undefined
  return { path: hook.Path, ...omitEmpty({ args: hook.Args, env: hook.Env, timeout }) }
}

/**
 * The runtime's JSON for one process (behaviour spec, section D.2). oomScoreAdj is always written: without it the
 * container would inherit the agent's own value.
 */
export function processConfig(process: Process): Json {
  return {
    ...omitEmpty({
      terminal: process.Terminal,
      consoleSize: process.ConsoleSize && {
        height: process.ConsoleSize.Height,
        width: process.ConsoleSize.Width,
      },
      args: process.Args,
      env: process.Env,
      rlimits: process.Rlimits.map(({ Type, Hard, Soft }) => ({ type: Type, hard: Hard, soft: Soft })),
      noNewPrivileges: process.NoNewPrivileges,
      apparmorProfile: process.ApparmorProfile,
      selinuxLabel: process.SelinuxLabel,
    }),
    user: {
      uid: process.User?.UID ?? 0,
      gid: process.User?.GID ?? 0,
      ...omitEmpty({ additionalGids: process.User?.AdditionalGids, username: process.User?.Username }),
    },
    cwd: process.Cwd === '' ? '/' : process.Cwd,
    oomScoreAdj: process.OOMScoreAdj,
    capabilities: process.Capabilities && capabilitiesConfig(process.Capabilities),
  }
}

/** Writes every set, even empty ones: with an absent list the process would keep the runtime's capabilities. */
function capabilitiesConfig(capabilities: LinuxCapabilities): Json {
  return {
    bounding: capabilities.Bounding,
    effective: capabilities.Effective,
    inheritable: capabilities.Inheritable,
    permitted: capabilities.Permitted,
    ambient: capabilities.Ambient,
  }
}

/** The `linux` object of `config.json`. */
function linuxConfig(linux: Linux): Json {
  return omitEmpty({
    uidMappings: linux.UIDMappings.map(idMappingConfig),
    gidMappings: linux.GIDMappings.map(idMappingConfig),
    sysctl: linux.Sysctl,
    resources: linux.Resources && resourcesConfig(linux.Resources),
    cgroupsPath: linux.CgroupsPath,
    namespaces: linux.Namespaces.map(namespaceConfig),
    devices: linux.Devices.map(deviceConfig),
    seccomp: linux.Seccomp && seccompConfig(linux.Seccomp),
    rootfsPropagation: linux.RootfsPropagation,
    maskedPaths: linux.MaskedPaths,
    readonlyPaths: linux.ReadonlyPaths,
    mountLabel: linux.MountLabel,
    intelRdt: linux.IntelRdt && omitEmpty({ l3CacheSchema: linux.IntelRdt.L3CacheSchema }),
  })
}

function idMappingConfig(mapping: LinuxIDMapping): Json {
  return { hostID: mapping.HostID, containerID: mapping.ContainerID, size: mapping.Size }
}

function namespaceConfig(namespace: LinuxNamespace): Json {
  return { type: namespace.Type, ...omitEmpty({ path: namespace.Path }) }
}

/** Owner and numbers are literal; a mode of 0 is left out, because a node with it could not be opened. */
function deviceConfig(device: LinuxDevice): Json {
  return {
    path: device.Path,
    type: device.Type,
    major: device.Major,
    minor: device.Minor,
    uid: device.UID,
    gid: device.GID,
    ...omitEmpty({ fileMode: device.FileMode }),
  }
}

/** The `seccomp` object of `config.json`. */
function seccompConfig(seccomp: LinuxSeccomp): Json {
  return {
    defaultAction: seccomp.DefaultAction,
    ...omitEmpty({
      architectures: seccomp.Architectures,
      flags: seccomp.Flags,
      syscalls: seccomp.Syscalls.map(syscallConfig),
    }),
  }
}

/** An errno of 0 differs from an absent one, which means EPERM. */
function syscallConfig(syscall: LinuxSyscall): Json {
  return {
    names: syscall.Names,
    action: syscall.Action,
    errnoRet: syscall.errnoret,
    ...omitEmpty({ args: syscall.Args.map(argConfig) }),
  }
}

function argConfig(arg: LinuxSeccompArg): Json {
  return {
    index: arg.Index,
    value: arg.Value,
    valueTwo: arg.ValueTwo,
    op: arg.Op,
  }
}

/**
 * The `resources` object of `config.json`, also the input of `runtime update` (behaviour spec, section D.2).
 * 0 means that the request sets no limit; −1, unlimited, is passed on.
 */
export function resourcesConfig(resources: LinuxResources): Json {
  const { Memory: memory, CPU: cpu } = resources
  return omitEmpty({
    devices: resources.Devices.map(deviceRuleConfig),
    memory:
      memory &&
      omitEmpty({
        limit: memory.Limit,
        reservation: memory.Reservation,
        swap: memory.Swap,
        kernel: memory.Kernel,
        kernelTCP: memory.KernelTCP,
        swappiness: memory.Swappiness,
        disableOOMKiller: memory.DisableOOMKiller,
      }),
    cpu:
      cpu &&
      omitEmpty({
        shares: cpu.Shares,
        quota: cpu.Quota,
        period: cpu.Period,
        realtimeRuntime: cpu.RealtimeRuntime,
        realtimePeriod: cpu.RealtimePeriod,
        cpus: cpu.Cpus,
        mems: cpu.Mems,
      }),
    pids: resources.Pids && omitEmpty({ limit: resources.Pids.Limit }),
    blockIO: resources.BlockIO && blockIoConfig(resources.BlockIO),
    hugepageLimits: resources.HugepageLimits.map(({ Pagesize, Limit }) => ({
      pageSize: Pagesize,
      limit: Limit,
    })),
    network: resources.Network && networkConfig(resources.Network),
  })
}

/** A negative number means any, 0 is a number (see `withExplicitWildcards`); an empty type means all. */
function deviceRuleConfig(rule: LinuxDeviceCgroup): Json {
  return {
    allow: rule.Allow,
    type: rule.Type === '' ? 'a' : rule.Type,
    ...(rule.Major < 0n ? {} : { major: rule.Major }),
    ...(rule.Minor < 0n ? {} : { minor: rule.Minor }),
    ...omitEmpty({ access: rule.Access }),
  }
}

function blockIoConfig(block: LinuxBlockIO): Json {
  return omitEmpty({
    weight: block.Weight,
    leafWeight: block.LeafWeight,
    weightDevice: block.WeightDevice.map(weightConfig),
    throttleReadBpsDevice: block.ThrottleReadBpsDevice.map(throttleConfig),
    throttleWriteBpsDevice: block.ThrottleWriteBpsDevice.map(throttleConfig),
    throttleReadIOPSDevice: block.ThrottleReadIOPSDevice.map(throttleConfig),
    throttleWriteIOPSDevice: block.ThrottleWriteIOPSDevice.map(throttleConfig),
  })
}

function weightConfig(device: LinuxWeightDevice): Json {
  return {
    major: device.Major,
    minor: device.Minor,
    ...omitEmpty({ weight: device.Weight, leafWeight: device.LeafWeight }),
  }
}

function throttleConfig(device: LinuxThrottleDevice): Json {
  return { major: device.Major, minor: device.Minor, rate: device.Rate }
}

function networkConfig(network: LinuxNetwork): Json {
  return omitEmpty({
    classID: network.ClassID,
    priorities: network.Priorities.map(({ Name, Priority }) => ({ name: Name, priority: Priority })),
  })
}
