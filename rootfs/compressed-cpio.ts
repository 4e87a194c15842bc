import { appendFileSync, readFileSync, rmSync } from 'node:fs'
import { tool } from '../src/build/tool.ts'
import { writeCpio } from './cpio.ts'
import type { TreeEntry } from './tree.ts'

/** Writes `entries` to `path` as a compressed cpio archive. */
export async function writeCompressedCpio(path: string, entries: readonly TreeEntry[]): Promise<void> {
  const plain = `${path}.plain`
  writeCpio(plain, entries)
  try {
    await compress(plain, path)
  } finally {
    rmSync(plain, { force: true })
  }
}

/** Writes the file `from` to `to`, compressed by zstd at its best ordinary level. */
export async function compress(from: string, to: string): Promise<void> {
  // -T0: zstd's threads change the time it takes, not the result.
  await tool('zstd', ['-19', '-T0', '--quiet', '--force', '-o', to, from], { debianPackage: 'zstd' })
}

/** Appends the initrd `from` to `to`: the kernel unpacks archives that follow each other one by one. */
export function appendInitrd(to: string, from: string): void {
  appendFileSync(to, readFileSync(from))
}
