import { basename, join } from 'node:path'
import { messageOf } from '../base/errors.ts'
import { tool } from '../build/tool.ts'
import type { FetchedPackage } from '../debian/packages.ts'
import { openAdvisories, type RuntimeName, runtimeVersion } from '../oci/runtime-advisories.ts'
import { treeOfFolder } from './formats/tree.ts'
import { LIBRARIES } from './libraries.ts'
import { isLocked } from './packages.ts'

type RuntimePackage = Pick<FetchedPackage, 'name' | 'version' | 'suite'>

/**
 * Throws for an OCI runtime among the packages that containers can break out of in a known way. Only Debian 13's own is taken
 * all the same, unless it was locked, because it is the last that is left when no newer one runs in the image; `progress` gets a
 * warning.
 */
export function checkRuntimes(packages: readonly RuntimePackage[], progress: (line: string) => void): void {
  for (const each of packages) {
    const { name, version } = each
    if (!isRuntime(name)) continue
    const fault = faultOf(name, version)
    if (fault === undefined) continue
    if (!isLastResort(each))
      throw new Error(`${fault.what}, want ${fault.want}: node scripts/lock-packages.ts`)
    progress(`warning: ${fault.what}`)
  }
}

/**
 * Throws for a program in the folder `root` that is such a runtime by its own words, wherever it came from, or that does not
 * tell its version. One that {@link checkRuntimes} took of `packages` is taken.
 */
export async function checkPrograms(root: string, packages: readonly RuntimePackage[]): Promise<void> {
  for (const { kind, path } of treeOfFolder(root, '')) {
    const name = basename(path)
    if (
      kind !== 'file' ||
      !isRuntime(name) ||
      packages.some((each) => each.name === name && isLastResort(each))
    )
      continue
    const fault = faultOf(name, runtimeVersion(await versionOf(root, path)))
    if (fault !== undefined) throw new Error(`${path}: ${fault.what}, want ${fault.want}`)
  }
}

function isRuntime(name: string): name is RuntimeName {
  return name === 'runc' || name === 'crun'
}

function isLastResort(each: RuntimePackage): boolean {
  return each.suite === 'trixie' && !isLocked(each)
}

function faultOf(name: RuntimeName, version: string) {
  const open = openAdvisories(name, version)
  const [newest] = open.toReversed()
  if (newest === undefined) return undefined
  const ids = open.map(({ id }) => id).join(', ')
  return {
    what: `${name} ${version}: containers can break out of it by ${ids}`,
    want: `${newest.fixedIn.join(', ')} or later`,
  }
}

/** What a program prints for `--version`, with the libraries of its root; one that is linked statically needs none. */
async function versionOf(root: string, path: string): Promise<string> {
  const [program, libraries] = [join(root, path), join(root, LIBRARIES)]
  const debianPackage = 'libc6'
  const loader = join(libraries, 'ld-linux-x86-64.so.2')
  try {
    return await tool(loader, ['--library-path', libraries, program, '--version'], { debianPackage })
  } catch (error) {
    return await tool(program, ['--version'], { debianPackage }).catch(() => {
      throw new Error(`${path}: tells no version: ${messageOf(error)}`)
    })
  }
}
