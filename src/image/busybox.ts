import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../build/cache.ts'
import { temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { extractPackage } from '../debian/packages.ts'
import { busyboxPackages, fetchLocked, packageHashes } from './packages.ts'

/** Debian's static busybox, a file of the build cache. Its shell has all its programs, without a link for each. */
export async function ensureBusybox(progress: (line: string) => void): Promise<string> {
  const packages = await fetchLocked('bookworm', busyboxPackages, progress)
  const inputs = { files: [import.meta.filename], values: packageHashes(packages) }
  const folder = await cached('busybox', inputs, async (target) => {
    await withTemporaryFolder(temporaryRoot, async (unpacked) => {
      for (const { path } of packages) await extractPackage(path, unpacked)
      copyFileSync(join(unpacked, 'bin/busybox'), join(target, 'busybox'))
    })
  })
  return join(folder, 'busybox')
}
