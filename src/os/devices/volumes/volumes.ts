import { readFile, statfs } from 'node:fs/promises'
import { checkErrno, fromNodeError } from '../../errors.ts'
import { unescapeOctal } from '../../files/unescape-octal.ts'
import type { Native } from '../../native.ts'
import type { FileSystemGrowth, Volumes } from '../../os.ts'
import { ext4Growth } from './ext4.ts'
import { xfsGrowth } from './xfs.ts'

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
