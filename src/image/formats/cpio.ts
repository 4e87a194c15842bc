import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import { tool } from '../../build/tool.ts'
import { completeTree, contentOf, type TreeEntry } from './tree.ts'

const FILE_TYPES = {
  file: 0o100000,
  directory: 0o040000,
  link: 0o120000,
  'character-device': 0o020000,
} as const

/**
 * Writes `entries` to `path` as the cpio archive that the kernel unpacks ("newc": Documentation/driver-api/
 * early-userspace/buffer-format.rst). The same entries give the same bytes: sorted, numbered from 1, time 0.
 */
export function writeCpio(path: string, entries: readonly TreeEntry[]): void {
  const descriptor = openSync(path, 'w', 0o644)
  try {
    for (const part of cpioParts(entries)) writeSync(descriptor, part)
  } finally {
    closeSync(descriptor)
  }
}

export async function writeCompressedCpio(path: string, entries: readonly TreeEntry[]): Promise<void> {
  const plain = `${path}.plain`
  writeCpio(plain, entries)
  try {
    await compress(plain, path)
  } finally {
    rmSync(plain, { force: true })
  }
}

/** Tests set a lower level, which builds a minute sooner. */
export const zstdLevel = () => process.env.MICROVM_ZSTD_LEVEL ?? '18'

export async function compress(from: string, to: string): Promise<void> {
  // -T0: the number of threads does not change the result.
  const options = [`-${zstdLevel()}`, '-T0', '--quiet', '--force', '-o', to, from]
  await tool('zstd', options, { debianPackage: 'zstd' })
}

export function* cpioParts(entries: readonly TreeEntry[]): Generator<Uint8Array> {
  let inode = 0
  for (const entry of completeTree(entries)) {
    inode += 1
    const data = dataOf(entry)
    yield header(entry, inode, data.length)
    yield data
    yield padding(data.length)
  }
  yield header({ kind: 'file', path: 'TRAILER!!!', mode: 0, content: { bytes: new Uint8Array() } }, 0, 0)
}

function dataOf(entry: TreeEntry): Uint8Array {
  if (entry.kind === 'file') return contentOf(entry.content)
  if (entry.kind === 'link') return Buffer.from(entry.target)
  return new Uint8Array()
}

/** The 110 bytes of a header and the name, padded so that the data starts at a multiple of four. */
function header(entry: TreeEntry, inode: number, size: number): Uint8Array {
  const device = entry.kind === 'character-device' ? entry : { major: 0, minor: 0 }
  const name = Buffer.from(`${entry.path}\0`)
  const trailer = inode === 0
  const fields = {
    inode,
    mode: trailer ? 0 : FILE_TYPES[entry.kind] | entry.mode,
    uid: 0,
    gid: 0,
    links: entry.kind === 'directory' ? 2 : 1,
    modified: 0,
    size,
    deviceMajor: 0,
    deviceMinor: 0,
    specialMajor: device.major,
    specialMinor: device.minor,
    nameSize: name.length,
    checksum: 0,
  }
  const hex = Object.values(fields).map((value) => value.toString(16).toUpperCase().padStart(8, '0'))
  const bytes = Buffer.concat([Buffer.from(`070701${hex.join('')}`), name])
  return Buffer.concat([bytes, padding(bytes.length)])
}

function padding(length: number): Uint8Array {
  return new Uint8Array((4 - (length % 4)) % 4)
}
