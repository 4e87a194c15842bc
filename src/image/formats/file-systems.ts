import { statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryRoot } from '../../build/project.ts'
import { withTemporaryFolder } from '../../build/temporary-folder.ts'
import { tool } from '../../build/tool.ts'
import { completeTree, contentOf, type TreeEntry, writeFolder } from './tree.ts'

/** Fixed, so that the same tree gives the same image. */
const UUID = '6d766167-656e-4000-8000-726f6f746673'

const MEBIBYTE = 2 ** 20

/** Writes `entries` to `path` as an uncompressed erofs image (docs/boot.md says why uncompressed). */
export async function writeErofs(path: string, entries: readonly TreeEntry[]): Promise<void> {
  await withFolder(entries, async (folder) => {
    await tool('mkfs.erofs', ['--quiet', '-T0', `-U${UUID}`, '--all-root', path, folder], {
      debianPackage: 'erofs-utils',
    })
  })
}

export async function writeExt4(
  path: string,
  entries: readonly TreeEntry[],
  {
    freeBytes,
    label,
  }: {
    readonly freeBytes: number
    readonly label: string
  },
): Promise<void> {
  await withFolder(entries, async (folder) => {
    const size = Math.ceil((contentBytes(entries) * 1.1 + freeBytes) / MEBIBYTE) * MEBIBYTE
    writeFileSync(path, '')
    truncateSync(path, size)
    // lazy_*_init=0: the kernel has nothing to initialize at the first mount.
    const extended = `hash_seed=${UUID},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0`
    const options = ['-q', '-F', '-t', 'ext4', '-m', '0', '-L', label, '-U', UUID, '-E', extended]
    const run = { debianPackage: 'e2fsprogs', env: { E2FSPROGS_FAKE_TIME: '1' } }
    await tool('mke2fs', [...options, '-d', folder, path], run)
    // mke2fs copies each file's change time, which cannot be set on a file, so it is set in the image.
    const commands = join(folder, 'debugfs-commands')
    const paths = ['', ...completeTree(entries).map((entry) => entry.path)]
    writeFileSync(commands, paths.map((name) => `set_inode_field "/${name}" ctime @0\n`).join(''))
    await tool('debugfs', ['-w', '-f', commands, path], run)
  })
}

async function withFolder(
  entries: readonly TreeEntry[],
  use: (folder: string) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(temporaryRoot, async (folder) => {
    writeFolder(folder, entries)
    await use(folder)
  })
}

function contentBytes(entries: readonly TreeEntry[]): number {
  return entries.reduce((sum, entry) => {
    if (entry.kind !== 'file') return sum
    return (
      sum +
      ('source' in entry.content ? statSync(entry.content.source).size : contentOf(entry.content).length)
    )
  }, 0)
}
