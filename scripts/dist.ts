import { createHash } from 'node:crypto'
import { copyFileSync, mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../package.json' with { type: 'json' }
import { agentTree, nodeTree } from '../rootfs/agent-files.ts'
import { cachedImage } from '../rootfs/cached-image.ts'
import { compress } from '../rootfs/compressed-cpio.ts'
import { writeFolder } from '../rootfs/folder.ts'
import { completeTree, contentOf, fileFrom, fileOf, type TreeEntry } from '../rootfs/tree.ts'
import { messageOf } from '../src/base/errors.ts'
import { buildAgent } from '../src/build/agent.ts'
import { projectRoot } from '../src/build/project.ts'
import { tool } from '../src/build/tool.ts'
import { licenceTree } from './dist/licences.ts'

const documentation = 'usr/share/doc/microvm-agent'

/** `npm run dist`: writes the archive for other people's images and prints its path. */
async function main(): Promise<void> {
  const progress = (line: string) => process.stderr.write(`dist: ${line}\n`)
  process.stdout.write(`${await makeArchive(join(projectRoot, 'dist'), progress)}\n`)
}

/**
 * Makes agent-VERSION-x86_64.tar.zst in `folder`: the agent's folder, its systemd unit and the modules that one needs, a
 * list of the files and their licences, to be unpacked over the root of a guest (docs/boot.md). The same sources give the same bytes.
 */
export async function makeArchive(folder: string, progress: (line: string) => void): Promise<string> {
  const tree = await archiveTree(progress)
  const built = await cachedImage('agent.tar.zst', tree, async (path) => {
    progress('compressing')
    await writeTar(path, tree)
  })
  mkdirSync(folder, { recursive: true })
  const archive = join(folder, `agent-${packageJson.version}-x86_64.tar.zst`)
  copyFileSync(built, `${archive}.tmp`)
  renameSync(`${archive}.tmp`, archive)
  return archive
}

/** What the archive holds; /usr/sbin/init is left to whoever unpacks it. */
async function archiveTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  const agent = agentTree(realpathSync(await buildAgent())).filter((entry) => entry.kind !== 'link')
  const shipped = (name: string) => join(import.meta.dirname, 'dist', name)
  const tree = [
    ...agent,
    ...(await nodeTree(progress)),
    fileFrom('usr/lib/systemd/system/microvm-agent.service', shipped('microvm-agent.service')),
    fileFrom('usr/lib/modules-load.d/microvm-agent.conf', shipped('modules-load.conf')),
    ...licenceTree(`${documentation}/licences`),
  ]
  return completeTree([...tree, fileOf(`${documentation}/files.sha256`, checksums(tree))])
}

/** In the format that `sha256sum --check` reads. */
function checksums(tree: readonly TreeEntry[]): string {
  return completeTree(tree)
    .flatMap((entry) => (entry.kind === 'file' ? [entry] : []))
    .map(({ content, path }) => `${createHash('sha256').update(contentOf(content)).digest('hex')}  ${path}\n`)
    .join('')
}

async function writeTar(archive: string, tree: readonly TreeEntry[]): Promise<void> {
  const temporary = mkdtempSync(join(tmpdir(), 'microvm-dist-'))
  try {
    const [folder, plain] = [join(temporary, 'root'), join(temporary, 'plain.tar')]
    mkdirSync(folder)
    writeFolder(folder, tree)
    const same = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0', '--numeric-owner', '--format=ustar']
    await tool('tar', [...same, '--create', '--file', plain, '--directory', folder, 'usr'], {
      debianPackage: 'tar',
    })
    await compress(plain, archive)
  } finally {
    rmSync(temporary, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  await main().catch((error: unknown) => {
    process.stderr.write(`dist: ${messageOf(error)}\n`)
    process.exitCode = 1
  })
}
