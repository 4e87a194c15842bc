import type { LinuxIntelRdt, LinuxResources, LinuxSeccomp, POSIXRlimit, Process, Spec } from '../gen/oci.ts'
import type { OnDeviation } from './deviation.ts'
import { NOFILE } from './rlimits.ts'

export interface ProcessSupport {
  /** The AppArmor profiles that are loaded; none without AppArmor. */
  readonly apparmorProfiles: ReadonlySet<string>
  readonly hasSelinux: boolean
  /** The highest RLIMIT_NOFILE that the kernel takes (`fs.nr_open`). */
  readonly maxOpenFiles: bigint
}

/** The sizes of huge pages, in bytes, whose use the guest can limit. */
export type HugePageSizes = ReadonlySet<bigint>

export interface GuestSupport extends ProcessSupport {
  readonly hugePageSizes: HugePageSizes
  /** The seccomp flags of the OCI runtime. */
  readonly seccompFlags: ReadonlySet<string>
}

/** Leaves out what the guest cannot do: the host names profiles, labels and page sizes of its own. */
export function supportedSpec(spec: Spec, support: GuestSupport, onDeviation: OnDeviation): Spec {
  const { Linux: linux, Process: process } = spec
  return {
    ...spec,
    Process: process && supportedProcess(process, support, onDeviation),
    Linux: linux && {
      ...linux,
      IntelRdt: withoutIntelRdt(linux.IntelRdt, onDeviation),
      MountLabel: selinuxLabel('linux.mountLabel', linux.MountLabel, support, onDeviation),
      Resources: linux.Resources && supportedResources(linux.Resources, support.hugePageSizes, onDeviation),
      Seccomp: linux.Seccomp && supportedSeccomp(linux.Seccomp, support.seccompFlags, onDeviation),
    },
  }
}

export function supportedProcess(
  process: Process,
  support: ProcessSupport,
  onDeviation: OnDeviation,
): Process {
  return {
    ...process,
    ApparmorProfile: apparmorProfile(process.ApparmorProfile, support, onDeviation),
    SelinuxLabel: selinuxLabel('process.selinuxLabel', process.SelinuxLabel, support, onDeviation),
    Rlimits: process.Rlimits.map((rlimit) => possibleRlimit(rlimit, support, onDeviation)),
  }
}

/** The caches of the host's CPUs cannot be divided from within a guest. */
function withoutIntelRdt(rdt: LinuxIntelRdt | undefined, onDeviation: OnDeviation): undefined {
  if (rdt !== undefined) onDeviation('linux.intelRdt', rdt.L3CacheSchema, 'the guest has no resctrl')
}

function apparmorProfile(
  profile: string,
  { apparmorProfiles }: ProcessSupport,
  onDeviation: OnDeviation,
): string {
  if (profile === '' || apparmorProfiles.has(profile)) return profile
  onDeviation('process.apparmorProfile', profile, 'not loaded in the guest')
  return ''
}

function selinuxLabel(
  field: string,
  label: string,
  { hasSelinux }: ProcessSupport,
  onDeviation: OnDeviation,
): string {
  if (label === '' || hasSelinux) return label
  onDeviation(field, label, 'the guest has no SELinux')
  return ''
}

function possibleRlimit(
  rlimit: POSIXRlimit,
  { maxOpenFiles }: ProcessSupport,
  onDeviation: OnDeviation,
): POSIXRlimit {
  const { Type: type, Soft: soft, Hard: hard } = rlimit
  if (type !== NOFILE || hard <= maxOpenFiles) return rlimit
  onDeviation('process.rlimits', `${NOFILE} ${soft}:${hard}`, `lowered to fs.nr_open, ${maxOpenFiles}`)
  return { Type: type, Soft: soft < maxOpenFiles ? soft : maxOpenFiles, Hard: maxOpenFiles }
}

/** Leaves out huge pages that the guest lacks. The kubelet sends a limit for each size of the host. */
export function supportedResources(
  resources: LinuxResources,
  sizes: HugePageSizes,
  onDeviation: OnDeviation,
): LinuxResources {
  const limits = resources.HugepageLimits.filter(({ Pagesize }) => {
    const bytes = bytesOf(Pagesize)
    const isSupported = bytes !== undefined && sizes.has(bytes)
    if (!isSupported) onDeviation('linux.resources.hugepageLimits', Pagesize, 'no such pages in the guest')
    return isSupported
  })
  return { ...resources, HugepageLimits: limits }
}

const UNITS: ReadonlyMap<string, bigint> = new Map([
  ['K', 1n << 10n],
  ['M', 1n << 20n],
  ['G', 1n << 30n],
])

/** The bytes of a page size in the form of the OCI specification, such as `2MB`; undefined for any other text. */
function bytesOf(size: string): bigint | undefined {
  const [, number, unit = ''] = /^([1-9]\d*)([KMG])B$/.exec(size) ?? []
  const factor = UNITS.get(unit)
  return number === undefined || factor === undefined ? undefined : BigInt(number) * factor
}

/** Flags change how a filter is installed or logged, not what it refuses. */
function supportedSeccomp(
  seccomp: LinuxSeccomp,
  supported: ReadonlySet<string>,
  onDeviation: OnDeviation,
): LinuxSeccomp {
  const flags = seccomp.Flags.filter((flag) => {
    if (!supported.has(flag)) onDeviation('linux.seccomp.flags', flag, 'the OCI runtime lacks it')
    return supported.has(flag)
  })
  return { ...seccomp, Flags: flags }
}
