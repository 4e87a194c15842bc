import type { Linux, LinuxDevice, LinuxIDMapping, LinuxNamespace } from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'
import { resourcesConfig } from './resources-config.ts'
import { seccompConfig } from './seccomp-config.ts'

/** The `linux` object of `config.json`. */
export function linuxConfig(linux: Linux): Json {
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

/** Owner and numbers are literal; a mode of 0 is left out, for it would make a node that nobody may open. */
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
