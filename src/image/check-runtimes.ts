import type { FetchedPackage } from '../debian/packages.ts'
import { openAdvisories } from '../oci/runtime-advisories.ts'

/**
 * Throws for an OCI runtime among the packages that containers can break out of in a known way. Only Debian 13's own is taken
 * all the same, because it is the last that is left when no newer one runs in the image; `progress` gets a warning.
 */
export function checkRuntimes(
  packages: readonly Pick<FetchedPackage, 'name' | 'version' | 'suite'>[],
  progress: (line: string) => void,
): void {
  for (const { name, version, suite } of packages) {
    if (name !== 'runc' && name !== 'crun') continue
    const open = openAdvisories(name, version)
    const [newest] = open.toReversed()
    if (newest === undefined) continue
    const what = `${name} ${version}: containers can break out of it by ${open.map(({ id }) => id).join(', ')}`
    if (suite !== 'trixie')
      throw new Error(`${what}, want ${newest.fixedIn.join(', ')} or later: node scripts/lock-packages.ts`)
    progress(`warning: ${what}`)
  }
}
