import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { projectRoot } from '../build/project.ts'
import { type FetchedPackage, fetchPackages } from '../debian/packages.ts'

/**
 * The Debian releases whose packages are locked. The guest is of trixie, with the OCI runtimes of forky; of bookworm
 * are kernels, busybox, and the tools that something is built with (docs/decisions/guest-packages.md).
 */
export type LockedSuite = 'bookworm' | 'trixie' | 'forky'

/** The releases that a runtime may come from when the mirror no longer has the locked one. */
export type PinnedSuite = LockedSuite | 'trixie-backports' | 'sid'

export interface KernelChoice {
  readonly suite: LockedSuite
  /** The package that depends on the newest kernel of its kind. */
  readonly metapackage: string
  /** Modules in addition to those of rootfs/modules, which other kernels do not have. */
  readonly modules: readonly string[]
}

/** The cloud kernels, and bookworm's kernel for all kinds of machines. Trixie's has no 9p and not all of cgroup v1. */
export const KERNELS = {
  trixie: { suite: 'trixie', metapackage: 'linux-image-cloud-amd64', modules: [] },
  bookworm: { suite: 'bookworm', metapackage: 'linux-image-cloud-amd64', modules: [] },
  'bookworm-generic': {
    suite: 'bookworm',
    metapackage: 'linux-image-amd64',
    modules: ['9p', '9pnet_virtio', 'ahci', 'ata_piix', 'crc32c_generic', 'sr_mod'],
  },
} as const satisfies Readonly<Record<string, KernelChoice>>

export type KernelName = keyof typeof KERNELS

export const DEFAULT_KERNEL = 'trixie' satisfies KernelName

/** The packages of the programs and the library that a kernel is built with, besides those of the machine. */
export const builtInKernelPackages = ['bison', 'flex', 'libelf-dev', 'libelf1', 'libsigsegv2', 'm4'] as const

/** The OCI runtimes, and the library of theirs that trixie does not have. */
export const runtimePackages = ['crun', 'libblake3-0', 'runc'] as const

/** The packages of the default container root and of the guest's shell, where one is asked for. */
export const busyboxPackages = ['busybox-static'] as const

export interface LockedPackage {
  readonly version: string
  readonly sha256: string
}

export type PackageLock = Readonly<Record<LockedSuite, Readonly<Record<string, LockedPackage>>>>

/** The lock file, written by `node scripts/lock-packages.ts`. */
export const lockFile = join(projectRoot, 'rootfs/packages.lock.json')

export function userlandPackages(): readonly string[] {
  return parseList(readFileSync(join(projectRoot, 'rootfs/packages'), 'utf8'))
}

export function parseList(text: string): readonly string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
}

function readLock(): PackageLock {
  if (!existsSync(lockFile)) return { bookworm: {}, trixie: {}, forky: {} }
  return JSON.parse(readFileSync(lockFile, 'utf8'))
}

/**
 * Fetches packages in their locked versions. Where the mirror no longer has one, `progress` says so and the newest is
 * returned. Throws when a package of the locked version has another checksum than the lock file.
 */
export async function fetchLocked(
  suite: PinnedSuite,
  names: readonly string[],
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  const lock: Readonly<Record<string, LockedPackage>> =
    suite === 'sid' || suite === 'trixie-backports' ? {} : readLock()[suite]
  const packages = names.map((name) => {
    const locked = lock[name]
    return locked === undefined ? name : `${name}=${locked.version}`
  })
  const fetched = await fetchPackages({ suite, packages, progress })
  for (const { name, version, sha256 } of fetched) {
    const locked = lock[name]
    if (locked?.version === version && locked.sha256 !== sha256)
      throw new Error(`${name}=${version}: sha256 is ${sha256}, want ${locked.sha256} (${lockFile})`)
  }
  return fetched
}

export function isLocked({
  name,
  version,
  suite,
}: Pick<FetchedPackage, 'name' | 'version' | 'suite'>): boolean {
  const lock: Readonly<Record<string, Readonly<Record<string, LockedPackage>>>> = readLock()
  return lock[suite]?.[name]?.version === version
}

/** Values that identify the locked versions of bookworm's packages in a cache key. */
export function lockedVersions(names: readonly string[]): readonly string[] {
  const lock = readLock().bookworm
  return names.map((name) => `${name} ${lock[name]?.version ?? 'not locked'}`)
}

/** Values that identify fetched packages in the cache key of a result built from them. */
export function packageHashes(packages: readonly FetchedPackage[]): readonly string[] {
  return packages.map(({ name, version, sha256 }) => `${name} ${version} ${sha256}`)
}
