import { mkdirSync, mkdtempSync, rmSync, statSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tool } from '../../build/tool.ts'
import { compress } from './cpio.ts'
import { type TreeEntry, writeFolder } from './tree.ts'

/** Two blocks of zeroes end a tar archive. */
const TAR_END_BYTES = 2 * 512

/** Writes `tree` to `archive` as a compressed tar archive, without its end when it is not the last of several in a row. */
export async function writeTar(
  archive: string,
  tree: readonly TreeEntry[],
  { last }: { readonly last: boolean },
): Promise<void> {
  const temporary = mkdtempSync(join(tmpdir(), 'microvm-dist-'))
  try {
    const [folder, plain] = [join(temporary, 'root'), join(temporary, 'plain.tar')]
    mkdirSync(folder)
    writeFolder(folder, tree)
    const same = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0', '--numeric-owner', '--format=ustar']
    // With records of one block nothing is padded.
    await tool(
      'tar',
      [...same, '--blocking-factor=1', '--create', '--file', plain, '--directory', folder, 'usr'],
      {
        debianPackage: 'tar',
      },
    )
    if (!last) truncateSync(plain, statSync(plain).size - TAR_END_BYTES)
    await compress(plain, archive)
  } finally {
    rmSync(temporary, { recursive: true, force: true })
  }
}
