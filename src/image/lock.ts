import { writeFileSync } from 'node:fs'
import { candidates, fetchPackages } from '../debian/packages.ts'
import { kernelPackageOf } from './kernel/kernel.ts'
import {
  builtInKernelPackages,
  busyboxPackages,
  KERNELS,
  type LockedPackage,
  type LockedSuite,
  lockFile,
  runtimePackages,
  userlandPackages,
} from './packages.ts'
import { fetchRust } from './rust.ts'

/** Locks the newest version on the mirror of each package of the guest: writes rootfs/packages.lock.json. */
export async function lockPackages(progress: (line: string) => void): Promise<void> {
  const lock = {
    bookworm: await lockSuite('bookworm', [...busyboxPackages, ...builtInKernelPackages], progress),
    trixie: await lockSuite('trixie', userlandPackages(), progress),
    forky: await lockSuite('forky', runtimePackages, progress),
  }
  writeFileSync(lockFile, `${JSON.stringify(lock, undefined, 2)}\n`)
}

async function lockSuite(
  suite: LockedSuite,
  names: readonly string[],
  progress: (line: string) => void,
): Promise<Record<string, LockedPackage>> {
  const metapackages = Object.values(KERNELS)
    .filter((kernel) => kernel.suite === suite)
    .map(({ metapackage }) => metapackage)
  const fetchNewest = async (packages: readonly string[]) => {
    const newest = await candidates({ suite, packages, progress })
    const requests = newest.map(({ name, version }) => `${name}=${version}`)
    return await fetchPackages({ suite, packages: requests, progress })
  }
  const fetched = await fetchNewest([...metapackages, ...names])
  const paths = fetched
    .filter(({ name }) => metapackages.some((each) => each === name))
    .map(({ path }) => path)
  const kernels = await fetchNewest(await Promise.all(paths.map(kernelPackageOf)))
  const rust = suite === 'bookworm' ? await fetchRust(fetchNewest) : []
  const entries = [...fetched, ...kernels, ...rust].map(
    ({ name, version, sha256 }) => [name, { version, sha256 }] as const,
  )
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)))
}
