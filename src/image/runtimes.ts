import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '../base/errors.ts'
import { cached } from '../build/cache.ts'
import { temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { extractPackage, type FetchedPackage } from '../debian/packages.ts'
import { openAdvisories } from '../oci/runtime-advisories.ts'
import { compareVersions, highestGlibc, LIBRARIES, libraryClosure } from './libraries.ts'
import { fetchLocked, isLocked, type LockedSuite, packageHashes } from './packages.ts'

/** The OCI runtimes: their programs, and the packages of a suite that have them and libraries that are not in rootfs/packages. */
export const RUNTIMES = {
  runc: { program: 'usr/sbin/runc', newer: ['runc'], ofTrixie: ['runc'] },
  crun: { program: 'usr/bin/crun', newer: ['crun', 'libblake3-0'], ofTrixie: ['crun', 'libyajl2'] },
} as const

/** A key of {@link RUNTIMES}. */
export type RuntimeName = keyof typeof RUNTIMES

/** Where a runtime is looked for; tests replace it. */
export interface RuntimeSource {
  /** Its packages: of forky the locked version, or the newest where the mirror no longer has it. Throws for a suite without. */
  fetch(suite: LockedSuite | 'sid'): Promise<readonly FetchedPackage[]>
  /** Why the image cannot have the runtime of these packages; undefined when it can. */
  lackOf(packages: readonly FetchedPackage[]): Promise<string | undefined>
}

/**
 * The packages of a runtime: those of forky, else of sid, if no advisory names them and they run in the image; else Debian
 * 13's own, or none, so that a guest boots in any case. `progress` gets a line for what is passed over.
 */
export async function chooseRuntime(
  name: RuntimeName,
  source: RuntimeSource,
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  for (const suite of ['forky', 'sid'] as const) {
    try {
      const packages = await source.fetch(suite)
      const lack = await source.lackOf(packages)
      if (lack === undefined) return packages
      progress(`${name} of Debian ${suite} is not taken: ${lack}`)
    } catch (error) {
      progress(`${name} of Debian ${suite} is not taken: ${messageOf(error)}`)
    }
  }
  try {
    const packages = await source.fetch('trixie')
    progress(`warning: no newer ${name} runs in the image: taking Debian 13's`)
    return packages
  } catch (error) {
    progress(`warning: the image has no ${name}: ${messageOf(error)}`)
    return []
  }
}

/** The packages of both runtimes for an image of which `base` are the others. */
export async function runtimesFor(
  base: readonly FetchedPackage[],
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  const chosen: FetchedPackage[] = []
  for (const name of ['runc', 'crun'] as const) {
    const { newer, ofTrixie } = RUNTIMES[name]
    const source: RuntimeSource = {
      fetch: (suite) => fetchLocked(suite, suite === 'trixie' ? ofTrixie : newer, progress),
      lackOf: (packages) => lackOf(name, packages, base),
    }
    chosen.push(...(await chooseRuntime(name, source, progress)))
  }
  return chosen
}

/** What locked packages lack is known: nothing. That of others is found out once. */
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
      return compareVersions(needed, present) > 0
        ? `it needs glibc ${needed}, and the image has ${present}`
        : undefined
    } catch (error) {
      return messageOf(error)
    }
  })
}
