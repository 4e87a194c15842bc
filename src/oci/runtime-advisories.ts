export type RuntimeName = 'runc' | 'crun'

/** A published way out of a container, by an OCI runtime. */
export interface RuntimeAdvisory {
  readonly id: string
  readonly runtime: RuntimeName
  /** What a container, or an image, comes by. */
  readonly allows: string
  /** The first version without it of each series that was repaired, in ascending order. Newer series never had it. */
  readonly fixedIn: readonly [string, ...string[]]
  /** Debian's versions of other series that were repaired; later uploads to the same release are, too. */
  readonly backports: readonly string[]
}

const OF_NOVEMBER_2025 = {
  runtime: 'runc',
  fixedIn: ['1.2.8', '1.3.3', '1.4.0-rc.3'],
  backports: [],
} as const

/**
 * The known ways out, all of runc, from its changelog and Debian's. docs/security.md says what is known of crun, and which
 * lesser holes are left out.
 */
export const RUNTIME_ADVISORIES: readonly RuntimeAdvisory[] = [
  {
    id: 'CVE-2024-21626',
    runtime: 'runc',
    allows: 'a working directory `/proc/self/fd/N`, which is a folder of the guest that runc has open',
    fixedIn: ['1.1.12'],
    backports: ['1.0.0~rc93+ds1-5+deb11u3', '1.1.5+ds1-1+deb12u1'],
  },
  {
    id: 'CVE-2025-31133',
    allows: 'a writable file of /proc in the place of a masked one, by a link at `/dev/null`',
    ...OF_NOVEMBER_2025,
  },
  {
    id: 'CVE-2025-52565',
    allows: 'a writable file of /proc as `/dev/console`, by a link at `/dev/pts/N`',
    ...OF_NOVEMBER_2025,
  },
  {
    id: 'CVE-2025-52881',
    allows: 'what runc writes to /proc (LSM labels, sysctls) goes into another file of /proc',
    ...OF_NOVEMBER_2025,
  },
]

/**
 * The advisories that a version of a runtime is open to: an upstream version (`1.1.12`, `1.4.0-rc.3`), or Debian's of the
 * package (`1.1.5+ds1-1+deb12u1`). Throws for what is no version.
 */
export function openAdvisories(runtime: RuntimeName, version: string): readonly RuntimeAdvisory[] {
  const parsed = parseVersion(version)
  return RUNTIME_ADVISORIES.filter(({ runtime: affected, fixedIn, backports }) => {
    if (affected !== runtime || backports.some((fixed) => isSameOrLaterUpload(version, fixed))) return false
    const [first, ...later] = fixedIn
    const ofSeries = later
      .map(parseVersion)
      .find(([major, minor]) => major === parsed[0] && minor === parsed[1])
    return isBefore(parsed, ofSeries ?? parseVersion(first))
  })
}

/**
 * The version in what an OCI runtime prints for `--version`; empty when it has none. Debian's builds have that of their package
 * in the place of the commit.
 */
export function runtimeVersion(output: string): string {
  const [, ofPackage] = /^commit: (\d+\.\d\S*-\S+)$/m.exec(output) ?? []
  const [, ofProgram = ''] = /^\w+ version (\S+)$/m.exec(output) ?? []
  return ofPackage ?? ofProgram
}

/** Major, minor, patch, and the number of the release candidate: a release comes after its candidates. */
type ParsedVersion = readonly [number, number, number, number]

function parseVersion(version: string): ParsedVersion {
  const match = /^(\d+)\.(\d+)(?:\.(\d+))?(?:[-~]rc\.?(\d+))?(?![\w.])/.exec(version)
  if (match === null) throw new Error(`runtime version "${version}": want MAJOR.MINOR.PATCH`)
  const [, major, minor, patch = 0, candidate = Number.POSITIVE_INFINITY] = match
  return [Number(major), Number(minor), Number(patch), Number(candidate)]
}

function isBefore(version: ParsedVersion, other: ParsedVersion): boolean {
  const differing = version.findIndex((part, index) => part !== other[index])
  return differing >= 0 && (version[differing] ?? 0) < (other[differing] ?? 0)
}

/** Whether Debian's `version` is `fixed` or a later upload to the same release: `…+deb12u2` after `…+deb12u1`. */
function isSameOrLaterUpload(version: string, fixed: string): boolean {
  const [upload, sameRelease] = [version, fixed].map((each) => /^(.+\+deb\d+u)(\d+)$/.exec(each))
  if (!upload || !sameRelease) return version === fixed
  return upload[1] === sameRelease[1] && Number(upload[2]) >= Number(sameRelease[2])
}
