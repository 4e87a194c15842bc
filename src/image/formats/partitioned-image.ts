import { statSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { cached } from '../../build/cache.ts'
import { buildRoot } from '../../build/project.ts'
import { type Partition, partitionTable } from './partition-table.ts'

const MEBIBYTE = 2 ** 20

/** The places in a partitioned image, in bytes. A VMM shows the image as a disk, or as persistent memory. */
export const LAYOUT = {
  /** Where the kernel's nvdimm driver looks for its metadata (SZ_4K in drivers/nvdimm/pfn_devs.c). */
  metadata: 4096,
  /** Byte 0 of /dev/pmem0: the driver hides what lies before. */
  persistentMemory: 2 * MEBIBYTE,
  /** The root file system. */
  root: 3 * MEBIBYTE,
  /** The size of the whole is a multiple of it: the kernel maps persistent memory in huge pages. */
  alignment: 2 * MEBIBYTE,
} as const

/** Fixed, so that the same root gives the same image. */
const UUID = Buffer.from('6d766167656e40008000706d656d726f', 'hex')
const DISK_ID = 0x6d766d61

/** What is written around a root file system. */
export interface PartitionedImage {
  /** The image's first bytes, up to the root file system. */
  readonly head: Uint8Array
  /** The size of the whole image in bytes. */
  readonly sizeBytes: number
}

/**
 * What surrounds a root file system of `rootBytes` in an image whose first partition it is. The image may be read as a whole
 * (virtio-blk: /dev/vda1), or as persistent memory with direct access (/dev/pmem0p1).
 */
export function partitionedImage(rootBytes: number): PartitionedImage {
  const sizeBytes = Math.ceil((LAYOUT.root + rootBytes) / LAYOUT.alignment) * LAYOUT.alignment
  const seenFrom = (base: number): Partition => ({
    number: 1,
    startBytes: LAYOUT.root - base,
    sizeBytes: sizeBytes - LAYOUT.root,
  })
  const head = Buffer.alloc(LAYOUT.root)
  head.set(partitionTable([seenFrom(0)], DISK_ID), 0)
  head.set(directAccessMetadata(), LAYOUT.metadata)
  head.set(partitionTable([seenFrom(LAYOUT.persistentMemory)], DISK_ID), LAYOUT.persistentMemory)
  return { head, sizeBytes }
}

const METADATA_BYTES = 4096
/** The kernel keeps the descriptions of the pages in RAM, so the image can be read-only. */
const MODE_RAM = 1

/**
 * The metadata by which the kernel's nvdimm driver gives direct access to what follows: struct nd_pfn_sb of
 * drivers/nvdimm/pfn.h, version 1.4.
 */
export function directAccessMetadata(): Uint8Array {
  const block = Buffer.alloc(METADATA_BYTES)
  block.write('NVDIMM_PFN_INFO\0', 0, 'latin1')
  UUID.copy(block, 16)
  // The parent's UUID at 32 and the flags at 48 are 0: a namespace without labels has no UUID.
  block.writeUInt16LE(1, 52)
  block.writeUInt16LE(4, 54)
  block.writeBigUInt64LE(BigInt(LAYOUT.persistentMemory), 56)
  // The number of pages at 64 counts in another mode only; padding at 76 and 80 is 0.
  block.writeUInt32LE(MODE_RAM, 72)
  block.writeUInt32LE(LAYOUT.alignment, 84)
  block.writeUInt32LE(4096, 88)
  block.writeUInt16LE(64, 92)
  block.writeBigUInt64LE(fletcher64(block), METADATA_BYTES - 8)
  return block
}

/** The checksum of the nvdimm driver (nd_fletcher64 in drivers/nvdimm/core.c) over words of 32 bits, little endian. */
export function fletcher64(bytes: Uint8Array): bigint {
  const words = Buffer.from(bytes)
  let low = 0
  let high = 0
  for (let offset = 0; offset < words.length; offset += 4) {
    low = (low + words.readUInt32LE(offset)) >>> 0
    high = (high + low) >>> 0
  }
  return (BigInt(high) << 32n) | BigInt(low)
}

/**
 * The partitioned image of the root disk `root`, a file of the build cache: an earlier result, or a new one. It is a file
 * of the build cache too.
 */
export async function ensurePartitionedImage(
  root: string,
  progress: (line: string) => void,
): Promise<string> {
  const files = ['partition-table.ts', 'partitioned-image.ts'].map((name) => join(import.meta.dirname, name))
  // Files of the build cache never change, and the names of their folders identify their inputs.
  const values = [relative(join(buildRoot, 'cache'), root)]
  const folder = await cached('partitioned-image', { files, values }, async (target) => {
    progress('making the partitioned image')
    await writePartitionedImage(join(target, 'root.img'), root)
  })
  return join(folder, 'root.img')
}

const COPIED_AT_ONCE = 4 * MEBIBYTE

/** Writes the file system in the file `root` to the new file `path` as a partitioned image. */
export async function writePartitionedImage(path: string, root: string): Promise<void> {
  const { head, sizeBytes } = partitionedImage(statSync(root).size)
  const [from, to] = [await open(root), await open(path, 'wx', 0o644)]
  try {
    await to.writeFile(head)
    const piece = Buffer.alloc(COPIED_AT_ONCE)
    for (let length = -1; length !== 0; ) {
      length = (await from.read(piece)).bytesRead
      await to.writeFile(piece.subarray(0, length))
    }
    await to.truncate(sizeBytes)
  } finally {
    await from.close()
    await to.close()
  }
}
