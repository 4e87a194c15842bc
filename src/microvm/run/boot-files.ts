import { open } from 'node:fs/promises'
import { resolve } from 'node:path'
import { ensureImage } from '../../image/ensure-image.ts'
import type { RunOptions } from '../command-line/parse.mjs'
import { UsageError } from '../command-line/parse.mjs'
import type { GuestParts } from '../guest-spec.ts'

/** Kernel, initrd and root disk for `options`, built when needed; `--image` replaces the root disk. */
export async function bootFiles(
  options: Pick<RunOptions, 'form' | 'kernel' | 'image'>,
  progress: (line: string) => void,
): Promise<GuestParts['boot']> {
  const { form, kernel: suite, image } = options
  const root = image === undefined ? undefined : { path: resolve(image), type: await fileSystemOf(image) }
  const { kernel, initrd, root: built } = await ensureImage({ form, kernel: suite, progress })
  return { kernel, initrd, root: root ?? built }
}

/** Magic numbers at their offsets (linux/magic.h): at the start of erofs's superblock, 56 bytes into ext4's. */
const MAGICS = [
  { type: 'erofs', offset: 1024, bytes: Buffer.from('e2e1f5e0', 'hex') },
  { type: 'ext4', offset: 1080, bytes: Buffer.from('53ef', 'hex') },
] as const

/** The type of the file system in an image. Throws {@link UsageError} when the guest cannot boot from it. */
export async function fileSystemOf(image: string): Promise<string> {
  const superblock = Buffer.alloc(2048)
  const file = await open(image)
  try {
    await file.read(superblock, 0, superblock.length, 0)
  } finally {
    await file.close()
  }
  const found = MAGICS.find(({ offset, bytes }) =>
    superblock.subarray(offset, offset + bytes.length).equals(bytes),
  )
  if (found !== undefined) return found.type
  throw new UsageError(`--image ${image}: unknown file system, want ext4 or erofs`)
}
