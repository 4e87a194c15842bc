import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { extractPackage, fetchPackages } from '../../../../src/debian/packages.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const MODULES = '/usr/lib/x86_64-linux-gnu/qemu'

/**
 * The words of a shell by which QEMU reads disks by https in its mount namespace; undefined where Debian has the module for
 * another QEMU than this host's.
 */
export async function addCurlModule(): Promise<string | undefined> {
  if (existsSync(join(MODULES, 'block-curl.so'))) return 'true'
  const words = ['-W', '-f=${' + 'Version}', 'qemu-system-common']
  const installed = execFileSync('dpkg-query', words, { encoding: 'utf8' })
  const progress = (line: string) => process.stderr.write(`${line}\n`)
  const [extra] = await fetchPackages({ suite: 'bookworm', packages: ['qemu-block-extra'], progress })
  if (extra?.version !== installed) return undefined
  const folder = temporaryFolder()
  await extractPackage(extra.path, folder)
  // The user of an instance loads it, who may not pass the folders above.
  return `mount -t overlay -o "lowerdir=${join(folder, MODULES)}:${MODULES}" overlay ${MODULES}`
}
