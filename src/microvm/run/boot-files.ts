import { statSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { resolve } from 'node:path'
import { messageOf } from '../../base/errors.ts'
import { ensureImage } from '../../image/ensure-image.ts'
import {
  hasPartitionTable,
  type Partition,
  readPartitionTable,
  SECTOR_BYTES,
} from '../../image/formats/partition-table.ts'
import type { RunOptions } from '../command-line/parse.mjs'
import { UsageError } from '../command-line/usage-error.mjs'
import type { GuestParts, RootDisk } from './guest-spec.ts'

/** Kernel, initrd and root disk for `options`, built when needed; `--image` replaces the root disk. */
export async function bootFiles(
  options: Pick<RunOptions, 'form' | 'kernel' | 'kernelFile' | 'image' | 'rootDevice'>,
  progress: (line: string) => void,
): Promise<GuestParts['boot']> {
  const { form, kernel: suite, kernelFile, image, rootDevice } = options
  if (kernelFile !== undefined) await checkKernel(kernelFile)
  const given = image === undefined ? undefined : await rootDiskOf(resolve(image))
  const built = await ensureImage({ form, kernel: suite, progress })
  const root = given ?? built.root
  const { kernel, vmlinux } = kernelFile === undefined ? built : { kernel: resolve(kernelFile) }
  const initrd = kernelFile !== undefined && form !== 'initrd' ? undefined : built.initrd
  const files = { kernel, vmlinux, initrd }
  if (root === undefined) return { ...files, root }
  if (rootDevice === 'nvdimm' && root.partition === undefined)
    throw new UsageError(
      `--root-device nvdimm: ${root.path} has no partition table, want a partitioned image`,
    )
  return { ...files, root: { ...root, interface: rootDevice, sizeBytes: statSync(root.path).size } }
}

/**
 * Throws {@link UsageError} for a file without the magic numbers of a bzImage, at 0x1fe and 0x202
 * (Documentation/arch/x86/boot.rst). QEMU starts whatever it is given, and nothing shows what that does.
 */
export async function checkKernel(path: string): Promise<void> {
  const magic = Buffer.alloc(8)
  const file = await open(resolve(path))
  try {
    await file.read(magic, 0, magic.length, 0x1fe)
  } finally {
    await file.close()
  }
  if (magic.readUInt16LE(0) === 0xaa55 && magic.toString('latin1', 4) === 'HdrS') return
  throw new UsageError(`--kernel ${path}: not a Linux kernel for x86, want a bzImage`)
}

/** Magic numbers at their offsets (linux/magic.h): at the start of erofs's superblock, 56 bytes into ext4's. */
const MAGICS = [
  { type: 'erofs', offset: 1024, bytes: Buffer.from('e2e1f5e0', 'hex') },
  { type: 'ext4', offset: 1080, bytes: Buffer.from('53ef', 'hex') },
] as const

/**
 * The root disk in an image: its file system, or that of its first partition. Throws {@link UsageError} when the guest
 * cannot boot from it.
 */
export async function rootDiskOf(image: string): Promise<RootDisk> {
  const file = await open(image)
  try {
    const whole = await fileSystemAt(file, 0)
    if (whole !== undefined) return { path: image, type: whole }
    const { startBytes, number } = await firstPartition(file)
    const type = await fileSystemAt(file, startBytes)
    if (type !== undefined) return { path: image, type, partition: number }
    throw new Error(`partition ${number}: unknown file system, want ext4 or erofs`)
  } catch (error) {
    throw new UsageError(`--image ${image}: ${messageOf(error)}`, { cause: error })
  } finally {
    await file.close()
  }
}

async function fileSystemAt(file: FileHandle, offset: number): Promise<string | undefined> {
  const start = Buffer.alloc(2048)
  await file.read(start, 0, start.length, offset)
  return MAGICS.find(({ offset, bytes }) => start.subarray(offset, offset + bytes.length).equals(bytes))?.type
}

async function firstPartition(file: FileHandle): Promise<Partition> {
  const sector = Buffer.alloc(SECTOR_BYTES)
  const { bytesRead } = await file.read(sector, 0, sector.length, 0)
  if (!hasPartitionTable(sector)) throw new Error('unknown file system, want ext4 or erofs')
  const status = await file.stat()
  // The size of a block device cannot be read this way; the kernel has checked its table.
  const size = status.isFile() ? status.size : Number.MAX_SAFE_INTEGER
  return readPartitionTable(sector.subarray(0, bytesRead), size)[0]
}
