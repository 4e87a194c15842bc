import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { extractPackage, fetchPackages } from '../../../src/debian/packages.ts'

/** The packages of Debian 12 that tests run without installing them, so that no service of theirs starts on this machine. */
const PACKAGES = ['passt', 'etcd-server'] as const

/** The folder with the programs of a package. */
export async function debianPrograms(name: (typeof PACKAGES)[number]): Promise<string> {
  const progress = (line: string) => process.stderr.write(`${line}\n`)
  const [found] = await fetchPackages({ suite: 'bookworm', packages: [name], progress })
  if (found === undefined) throw new Error(`Debian bookworm: no package ${name}`)
  const folder = await cached(`bookworm-${name}`, { values: [found.sha256] }, (target) =>
    extractPackage(found.path, target),
  )
  return join(folder, 'usr/bin')
}
