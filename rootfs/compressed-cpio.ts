import { appendFileSync, readFileSync, rmSync } from 'node:fs'
import { tool } from '../scripts/apt/tool.ts'
import { writeCpio } from './cpio.ts'
import type { TreeEntry } from './tree.ts'

/** Writes `entries` to `path` as a cpio archive compressed by zstd at its best ordinary level. */
export async function writeCompressedCpio(path: string, entries: readonly TreeEntry[]): Promise<void> {
  const plain = `${path}.plain`
  writeCpio(plain, entries)
  try {
    // -T0: zstd's threads change the time it takes, not the result.
    await tool('zstd', ['-19', '-T0', '--quiet', '--no-check', '-o', path, plain], { debianPackage: 'zstd' })
  } finally {
    rmSync(plain, { force: true })
  }
}

/** Appends the initrd `from` to `to`: the kernel unpacks archives that follow each other one by one. */
export function appendInitrd(to: string, from: string): void {
  appendFileSync(to, readFileSync(from))
}
