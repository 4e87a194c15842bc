import { basename } from 'node:path/posix'
import type { Sample } from '../../../base/exposition.ts'
import type { MountEntry } from '../../../os/files/mounts.ts'
import type { Os } from '../../../os/os.ts'
import type { Metric } from './exposition.ts'

/** The file system types that store data. */
const TYPES: ReadonlySet<string> = new Set(['ext4', 'xfs', 'btrfs', 'vfat', 'overlay'])

/** Reports each writable file system once, even if it is mounted several times. */
export async function fileSystemMetrics({
  mounts,
  volumes,
}: Pick<Os, 'mounts' | 'volumes'>): Promise<Metric[]> {
  const [bytes, inodes]: [Sample[], Sample[]] = [[], []]
  const seen = new Set<string>()
  for (const mount of await mounts.list()) {
    const number = `${mount.major}:${mount.minor}`
    if (!TYPES.has(mount.type) || isReadOnly(mount) || seen.has(number)) continue
    seen.add(number)
    // Skip a file system that fails; it may have been unmounted.
    const usage = await volumes.usage(mount.mountPoint).catch(() => undefined)
    if (usage === undefined) continue
    const device = mount.source.startsWith('/') ? basename(mount.source) : number
    const labels = { mount: mount.mountPoint, device }
    bytes.push(...samplesOf(labels, usage.blocks * usage.blockBytes, usage.freeBlocks * usage.blockBytes))
    inodes.push(...samplesOf(labels, usage.inodes, usage.freeInodes))
  }
  return [
    { name: 'kata_guest_filesystem_bytes', samples: bytes },
    { name: 'kata_guest_filesystem_inodes', samples: inodes },
  ]
}

function isReadOnly({ options }: MountEntry): boolean {
  return options.split(',').includes('ro')
}

function samplesOf(labels: Readonly<Record<string, string>>, total: bigint, available: bigint): Sample[] {
  const values = { total, used: total - available, available }
  return Object.entries(values).map(([item, value]) => ({ labels: { ...labels, item }, value }))
}
