import type { FileSystemGrowth } from '../../../src/os/devices/volumes/growth.ts'
import type { FileSystemUsage, Volumes } from '../../../src/os/devices/volumes/volumes.ts'
import { kernelError } from '../../../src/os/errors.ts'

const BLOCK_BYTES = 4096n

/** File systems whose sizes the test sets, and swap space. */
export class FakeVolumes implements Volumes {
  /** The usage of file systems, by path. */
  readonly usages = new Map<string, FileSystemUsage>()
  /** Blocks of 4 KiB of the growing file systems, by mount point. */
  readonly blocks = new Map<string, bigint>()
  /** Types of file systems that grow. */
  readonly growing = new Set(['ext4', 'xfs'])
  /** Paths that are prepared for swapping, and those in use. */
  readonly swappable = new Set<string>()
  readonly swapped: string[] = []

  async usage(path: string): Promise<FileSystemUsage> {
    const usage = this.usages.get(path)
    if (usage === undefined) throw kernelError('statfs', path, 'ENOENT')
    return usage
  }

  growth(type: string): FileSystemGrowth | undefined {
    if (!this.growing.has(type)) return undefined
    return {
      size: async ({ mountPoint }) => ({
        blockBytes: BLOCK_BYTES,
        blocks: this.blocks.get(mountPoint) ?? 0n,
      }),
      grow: async ({ mountPoint }, blocks) => void this.blocks.set(mountPoint, blocks),
    }
  }

  async addSwap(path: string): Promise<void> {
    if (this.swapped.includes(path)) throw kernelError('swapon', path, 'EBUSY')
    if (!this.swappable.has(path)) throw kernelError('swapon', path, 'EINVAL')
    this.swapped.push(path)
  }

  async swaps(): Promise<readonly string[]> {
    return [...this.swapped]
  }
}
