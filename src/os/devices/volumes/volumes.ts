import { readFile, statfs } from 'node:fs/promises'
import { checkErrno, fromNodeError } from '../../errors.ts'
import { unescapeOctal } from '../../files/mountinfo.ts'
import type { MountEntry } from '../../files/mounts.ts'
import type { Native } from '../../native.ts'
import { ext4Growth } from './ext4.ts'
import type { FileSystemGrowth } from './growth.ts'
import { xfsGrowth } from './xfs.ts'

/** What file systems have room for, and space for swapping. */
export interface Volumes {
  /** statfs(2): the file system that `path` is on. ENOENT when there is nothing at `path`. */
  usage(path: string): Promise<FileSystemUsage>
  /** How file systems of this type (as in {@link MountEntry}) grow while they are mounted; undefined for those that do not. */
  growth(type: string): FileSystemGrowth | undefined
  /** swapon(2) of a block device or file: EINVAL when it is not prepared for it, EBUSY when it is in use. */
  addSwap(path: string): Promise<void>
  /** The block devices and files that are swapped on, by the names they were given. */
  swaps(): Promise<readonly string[]>
}

export interface FileSystemUsage {
  readonly blockBytes: bigint
  readonly blocks: bigint
  /** Those reserved for root are free as well. */
  readonly freeBlocks: bigint
  readonly inodes: bigint
  readonly freeInodes: bigint
}

/** The file systems of this process's mount namespace. */
export function linuxVolumes(native: Native): Volumes {
  const growths = new Map<string, FileSystemGrowth>([
    ['ext4', ext4Growth(native)],
    ['xfs', xfsGrowth(native)],
  ])
  return {
    async usage(path) {
      const found = await statfs(path, { bigint: true }).catch(failed('statfs', path))
      const { bsize, blocks, bfree, files, ffree } = found
      return { blockBytes: bsize, blocks, freeBlocks: bfree, inodes: files, freeInodes: ffree }
    },
    growth: (type) => growths.get(type),
    async addSwap(path) {
      checkErrno('swapon', path, await native.swapOn(path, 0))
    },
    async swaps() {
      return parseSwaps(await readFile(SWAPS, 'utf8').catch(failed('read', SWAPS)))
    },
  }
}

const SWAPS = '/proc/swaps'

/** proc(5): a line of headings, then one for each, which begins with its path. */
export function parseSwaps(text: string): string[] {
  const [, ...lines] = text.split('\n')
  return lines.filter((line) => line !== '').map((line) => unescapeOctal(line.replace(/\s.*/, '')))
}

function failed(call: string, path: string): (error: unknown) => never {
  return (error) => {
    throw fromNodeError(call, path, error)
  }
}
