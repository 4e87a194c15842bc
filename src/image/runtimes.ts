import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '../base/errors.ts'
import { cached } from '../build/cache.ts'
import { temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { extractPackage, type FetchedPackage, isNewer } from '../debian/packages.ts'
import { openAdvisories } from '../oci/runtime-advisories.ts'
import { compareGlibc, highestGlibc, LIBRARIES, libraryClosure } from './libraries.ts'
import { fetchLocked, isLocked, type PinnedSuite, packageHashes } from './packages.ts'

/** The packages hold the program and the libraries that rootfs/packages lacks. */
export const RUNTIMES = {
  runc: { program: 'usr/sbin/runc', newer: ['runc'], ofTrixie: ['runc'] },
  crun: { program: 'usr/bin/crun', newer: ['crun', 'libblake3-0'], ofTrixie: ['crun', 'libyajl2'] },
} as const

export type RuntimeName = keyof typeof RUNTIMES

/**
 * Chooses the packages of both runtimes, which must run with the libraries of `base`. Prefers the locked versions, then the
 * newest without an advisory from forky, Debian 13's backports or security archive, or sid. Otherwise takes Debian 13's
 * own, or none, so that a guest boots in any case. `progress` gets a line for each version that is passed over.
 */
export async function runtimesFor(
  base: readonly FetchedPackage[],
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  const chosen: FetchedPackage[] = []
  for (const name of ['runc', 'crun'] as const) chosen.push(...(await runtimeFor(name, base, progress)))
  return chosen
}

async function runtimeFor(
  name: RuntimeName,
  base: readonly FetchedPackage[],
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  const { newer, ofTrixie } = RUNTIMES[name]
  const notTaken = (suite: string, lack: string) =>
    progress(`${name} of Debian ${suite} is not taken: ${lack}`)
  const fetchFrom = async (suite: PinnedSuite): Promise<readonly FetchedPackage[]> => {
    try {
      return await fetchLocked(suite, suite === 'trixie' ? ofTrixie : newer, progress)
    } catch (error) {
      notTaken(suite, messageOf(error))
      return []
    }
  }
  const takeFirst = async (found: readonly (readonly FetchedPackage[])[]) => {
    for (const packages of found) {
      const [first] = packages
      if (first === undefined) continue
      const lack = await lackOf(name, packages, base)
      if (lack === undefined) return packages
      notTaken(first.suite, lack)
    }
    return undefined
  }
  const ofForky = await fetchFrom('forky')
  if (ofForky.length > 0 && ofForky.every(isLocked)) return ofForky
  const backport = await fetchFrom('trixie-backports')
  const isNewest = await isNewer(backport[0]?.version, ofForky[0]?.version)
  const newest = isNewest ? [backport, ofForky] : [ofForky, backport]
  const taken = (await takeFirst(newest)) ?? (await takeFirst([await fetchFrom('sid')]))
  if (taken !== undefined) return taken
  const own = await fetchFrom('trixie')
  progress(
    own.length > 0
      ? `warning: no newer ${name} runs in the image: taking Debian 13's`
      : `warning: the image has no ${name}`,
  )
  return own
}

/** Locked packages lack nothing; the lack of others is cached. */
export async function lackOf(
  name: RuntimeName,
  packages: readonly FetchedPackage[],
  base: readonly FetchedPackage[],
): Promise<string | undefined> {
  if (packages.every(isLocked)) return undefined
  const version = packages.find((each) => each.name === name)?.version ?? ''
  const [open] = openAdvisories(name, version)
  if (open !== undefined) return `${version} is open to ${open.id}`
  const all = [...base, ...packages]
  const inputs = { files: [import.meta.filename], values: [name, ...packageHashes(all)] }
  const folder = await cached('runtime-lack', inputs, async (target) => {
    writeFileSync(join(target, 'lack'), (await findLack(RUNTIMES[name].program, all)) ?? '')
  })
  return readFileSync(join(folder, 'lack'), 'utf8') || undefined
}

/** The library, or the version of glibc, that `program` does not find among the packages. */
async function findLack(program: string, packages: readonly FetchedPackage[]): Promise<string | undefined> {
  return await withTemporaryFolder(temporaryRoot, async (root) => {
    for (const { path } of packages) await extractPackage(path, root)
    const file = join(root, program)
    try {
      const libraries = await libraryClosure(root, [file])
      const others = [...libraries].filter(([soname]) => soname !== 'libc.so.6').map(([, path]) => path)
      const needed = await highestGlibc([file, ...others])
      const present = await highestGlibc([join(root, LIBRARIES, 'libc.so.6')])
      return compareGlibc(needed, present) > 0
        ? `it needs glibc ${needed}, and the image has ${present}`
        : undefined
    } catch (error) {
      return messageOf(error)
    }
  })
}
