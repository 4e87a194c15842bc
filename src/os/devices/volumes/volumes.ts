import { checkErrno, failed } from '../../errors.ts'
import { unescapeOctal } from '../../files/mountinfo.ts'
import type { MountEntry } from '../../files/mounts.ts'
import { readFile, statfs } from '../../files/node-files.ts'
import type { Native } from '../../native.ts'
import { ext4Growth } from './ext4.ts'
import type { FileSystemGrowth } from './growth.ts'
import { xfsGrowth } from './xfs.ts'

export interface Volumes {
  /** statfs(2). ENOENT when nothing is at `path`. */
  usage(path: string): Promise<FileSystemUsage>
  /** undefined for a type (as in {@link MountEntry}) that cannot grow while it is mounted. */
  growth(type: string): FileSystemGrowth | undefined
  /** swapon(2) of a block device or file; EINVAL when it is not prepared by mkswap, EBUSY when it is in use. */
  addSwap(path: string): Promise<void>
  /** The paths of the active swap devices and files, as given to `addSwap`. */
  swaps(): Promise<readonly string[]>
}

export interface FileSystemUsage {
  readonly blockBytes: bigint
  readonly blocks: bigint
  /** Includes the blocks reserved for root. */
  readonly freeBlocks: bigint
  readonly inodes: bigint
  readonly freeInodes: bigint
}

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

/** Parses /proc/swaps (proc(5)): a line of headings, then one line each, which begins with the path. */
export function parseSwaps(text: string): string[] {
  const [, ...lines] = text.split('\n')
  return lines.filter((line) => line !== '').map((line) => unescapeOctal(line.replace(/\s.*/, '')))
}
