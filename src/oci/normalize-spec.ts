import type {
  Linux,
  LinuxCapabilities,
  LinuxDevice,
  LinuxDeviceCgroup,
  LinuxNamespace,
  LinuxResources,
  LinuxSeccomp,
  LinuxSyscall,
  Process,
  Spec,
} from '../gen/oci.ts'
import type { OnDeviation } from './deviation.ts'

/**
 * The request's specification in the words of the OCI runtime specification. Callers build theirs from different
 * libraries, which name the same things differently (docs/reference/callers-words.md lists each form and who sends it). Comes
 * before every check; a word that is in no list is left as it is, for the check to refuse.
 */
export function normalizeSpec(spec: Spec, onDeviation: OnDeviation): Spec {
  return {
    ...spec,
    Process: spec.Process && normalizeProcess(spec.Process, onDeviation),
    Linux: spec.Linux && normalizeLinux(spec.Linux, onDeviation),
  }
}

export function normalizeProcess(process: Process, onDeviation: OnDeviation): Process {
  return {
    ...process,
    Env: withoutNamelessEntries(process.Env, onDeviation),
    Capabilities: process.Capabilities && normalizeCapabilities(process.Capabilities),
  }
}

/** `=x` names no variable. The values may be secret, so only the index is told. */
function withoutNamelessEntries(entries: readonly string[], onDeviation: OnDeviation): string[] {
  return entries.filter((entry, index) => {
    if (!entry.startsWith('=')) return true
    onDeviation('process.env', `entry ${index}`, 'it has no name')
    return false
  })
}

function normalizeCapabilities(sets: LinuxCapabilities): LinuxCapabilities {
  return {
    Bounding: sets.Bounding.map(capabilityName),
    Effective: sets.Effective.map(capabilityName),
    Inheritable: sets.Inheritable.map(capabilityName),
    Permitted: sets.Permitted.map(capabilityName),
    Ambient: sets.Ambient.map(capabilityName),
  }
}

/** `CHOWN`, `cap_chown` and `"CAP_CHOWN"` (JSON with its quotes) are `CAP_CHOWN`. */
function capabilityName(word: string): string {
  const [, name = ''] = /^"?(?:CAP_)?(\w+)"?$/.exec(word.toUpperCase()) ?? []
  return name === '' ? word : `CAP_${name}`
}

function normalizeLinux(linux: Linux, onDeviation: OnDeviation): Linux {
  return {
    ...linux,
    Namespaces: linux.Namespaces.map(normalizeNamespace),
    Devices: linux.Devices.map(normalizeDevice),
    Resources: linux.Resources && normalizeResources(linux.Resources),
    Seccomp: linux.Seccomp && normalizeSeccomp(linux.Seccomp, onDeviation),
  }
}

/** The kernel's short names of namespaces (`/proc/PID/ns`), by the names of the OCI runtime specification. */
export const SHORT_NAMESPACES: ReadonlyMap<string, string> = new Map([
  ['mnt', 'mount'],
  ['net', 'network'],
])

function normalizeNamespace(namespace: LinuxNamespace): LinuxNamespace {
  return { ...namespace, Type: SHORT_NAMESPACES.get(namespace.Type) ?? namespace.Type }
}

export function normalizeResources(resources: LinuxResources): LinuxResources {
  return { ...resources, Devices: resources.Devices.map(withCharacterType) }
}

/** The type of a node may be in its mode too (man 7 inode), where a runtime takes no more than permissions. */
function normalizeDevice(device: LinuxDevice): LinuxDevice {
  return { ...withCharacterType(device), FileMode: device.FileMode & PERMISSIONS }
}

/** The permissions of a mode, with set-user-ID, set-group-ID and the sticky bit. */
const PERMISSIONS = 0o7777

/** `u`, an unbuffered character device, is what Linux calls `c` (man 1 mknod). */
function withCharacterType<Device extends LinuxDevice | LinuxDeviceCgroup>(device: Device): Device {
  return device.Type === 'u' ? { ...device, Type: 'c' } : device
}

/**
 * The architectures that both runtimes know, in the names of libseccomp. `SCMP_ARCH_NATIVE`, which runc does not know,
 * needs no entry: every filter is for the guest's own architecture too.
 */
export const SECCOMP_ARCHITECTURES = [
  ...['X86', 'X86_64', 'X32', 'ARM', 'AARCH64', 'MIPS', 'MIPS64', 'MIPS64N32', 'MIPSEL', 'MIPSEL64'],
  ...['MIPSEL64N32', 'PPC', 'PPC64', 'PPC64LE', 'S390', 'S390X'],
].map((name) => `SCMP_ARCH_${name}`)

function normalizeSeccomp(seccomp: LinuxSeccomp, onDeviation: OnDeviation): LinuxSeccomp {
  return {
    ...seccomp,
    // A filter for an architecture of which no program can run here protects nothing.
    Architectures: seccomp.Architectures.filter((architecture) => {
      const isKnown = SECCOMP_ARCHITECTURES.includes(architecture)
      if (!isKnown) onDeviation('linux.seccomp.architectures', architecture, 'unknown to the OCI runtimes')
      return isKnown
    }),
    Syscalls: seccomp.Syscalls.map(normalizeSyscall),
  }
}

/**
 * An errno of 0 is none: callers whose library has no absent one send 0 with every rule, and a refused call must not
 * seem to succeed.
 */
function normalizeSyscall(syscall: LinuxSyscall): LinuxSyscall {
  return { ...syscall, errnoret: syscall.errnoret === 0 ? undefined : syscall.errnoret }
}
