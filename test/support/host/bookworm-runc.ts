import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { extractPackage, fetchPackages } from '../../../src/debian/packages.ts'

/** Debian 12's runc of the last version that the advisories of November 2025 affect. */
export async function bookwormRunc(): Promise<string> {
  const progress = (line: string) => process.stderr.write(`${line}\n`)
  const packages = ['runc=1.1.5+ds1-1+deb12u1']
  const [runc] = await fetchPackages({ suite: 'bookworm', packages, progress })
  if (runc === undefined) throw new Error('Debian bookworm: no package runc')
  const folder = await cached('bookworm-runc', { values: [runc.sha256] }, (target) =>
    extractPackage(runc.path, target),
  )
  return join(folder, 'usr/sbin/runc')
}
