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
 * Throws for a runtime with a known break-out. Debian 13's own runtime is accepted with a warning to `progress`, unless it
 * was locked, because it is the last choice when no newer one runs in the image.
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
 * Throws for a program below `root` whose `--version` names a runtime with a known break-out, or no version. Accepts what
 * {@link checkRuntimes} accepted of `packages`.
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

/** Runs `--version` with the libraries of the root, unless the program is linked statically. */
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
