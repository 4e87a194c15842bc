import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type FetchedPackage, fetchPackages } from '../src/debian/packages.ts'

/** The Debian releases a guest kernel is taken from; everything else of the guest is bookworm's. */
export type KernelSuite = 'bookworm' | 'trixie'

/** A kernel of Debian's that a guest can have. */
export interface KernelChoice {
  readonly suite: KernelSuite
  /** The package that depends on the newest of its kind. */
  readonly metapackage: string
  /** Modules that other kernels do not have, besides those of the list. */
  readonly modules: readonly string[]
}

/** Their cloud kernels, and the one for machines of every kind. */
export const KERNELS = {
  bookworm: { suite: 'bookworm', metapackage: 'linux-image-cloud-amd64', modules: [] },
  trixie: { suite: 'trixie', metapackage: 'linux-image-cloud-amd64', modules: [] },
  'bookworm-generic': {
    suite: 'bookworm',
    metapackage: 'linux-image-amd64',
    modules: ['9p', '9pnet_virtio', 'crc32c_generic'],
  },
} as const satisfies Readonly<Record<string, KernelChoice>>

/** A key of {@link KERNELS}. */
export type KernelName = keyof typeof KERNELS

/** What the guest's programs and their libraries come from. */
export const userlandPackages = [
  'crun',
  'e2fsprogs',
  'hostname',
  'iptables',
  'kmod',
  'libblkid1',
  'libc6',
  'libcap2',
  'libcom-err2',
  'libext2fs2',
  'libgcc-s1',
  'libgcrypt20',
  'libgpg-error0',
  'liblz4-1',
  'liblzma5',
  'libmnl0',
  'libnetfilter-conntrack3',
  'libnfnetlink0',
  'libnftnl11',
  'libseccomp2',
  'libssl3',
  'libstdc++6',
  'libsystemd0',
  'libuuid1',
  'libxtables12',
  'libyajl2',
  'libzstd1',
  'runc',
  'util-linux',
] as const

/** What the default container root is made of. */
export const containerPackages = ['busybox-static'] as const

/** One locked package. */
export interface LockedPackage {
  readonly version: string
  readonly sha256: string
}

/** Locked packages by suite and name. */
export type PackageLock = Readonly<Record<KernelSuite, Readonly<Record<string, LockedPackage>>>>

/** The lock file, written by `node rootfs/lock.ts`. */
export const lockFile = join(import.meta.dirname, 'packages.lock.json')

/** Reads {@link lockFile}; no file is an empty lock. */
export function readLock(): PackageLock {
  if (!existsSync(lockFile)) return { bookworm: {}, trixie: {} }
  return JSON.parse(readFileSync(lockFile, 'utf8'))
}

/**
 * Fetches packages in their locked versions. Where the mirror has moved on, `progress` says so and the newer one
 * is returned. Throws when a package of a locked version is not the locked one.
 */
export async function fetchLocked(
  suite: KernelSuite,
  names: readonly string[],
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  const lock = readLock()[suite]
  const packages = names.map((name) => {
    const locked = lock[name]
    return locked === undefined ? name : `${name}=${locked.version}`
  })
  const fetched = await fetchPackages({ suite, packages, progress })
  for (const { name, version, sha256 } of fetched) {
    const locked = lock[name]
    if (locked?.version === version && locked.sha256 !== sha256)
      throw new Error(`${name} ${version} is not the package that ${lockFile} names: its sha256 is ${sha256}`)
  }
  return fetched
}

/** What identifies fetched packages in the hash of what is built from them. */
export function packageHashes(packages: readonly FetchedPackage[]): readonly string[] {
  return packages.map(({ name, version, sha256 }) => `${name} ${version} ${sha256}`)
}
