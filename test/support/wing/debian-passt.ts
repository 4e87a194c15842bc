import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { extractPackage, fetchPackages } from '../../../src/debian/packages.ts'

/** The folder with Debian 12's passt. */
export async function debianPasst(): Promise<string> {
  const progress = (line: string) => process.stderr.write(`${line}\n`)
  const [passt] = await fetchPackages({ suite: 'bookworm', packages: ['passt'], progress })
  if (passt === undefined) throw new Error('Debian bookworm: no package passt')
  const folder = await cached('bookworm-passt', { values: [passt.sha256] }, (target) =>
    extractPackage(passt.path, target),
  )
  return join(folder, 'usr/bin')
}
