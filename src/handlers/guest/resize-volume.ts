import { AgentError } from '../../base/errors.ts'
import type { ResizeVolumeRequest } from '../../gen/agent.ts'
import { type HotplugDependencies, waitForDevice } from '../../hotplug/wait-for-device.ts'
import type { FileSystemGrowth } from '../../os/devices/volumes/growth.ts'
import type { Volumes } from '../../os/devices/volumes/volumes.ts'
import type { MountEntry, Mounts } from '../../os/files/mounts.ts'
import { checkVolumePath, noSuchVolume } from './volume-stats.ts'

/** What growing a volume works with. */
export interface ResizeDependencies extends HotplugDependencies {
  readonly mounts: Mounts
  readonly volumes: Volumes
}

/** /sys/dev/block counts in these, whatever the device's own sectors are. */
const SECTOR_BYTES = 512n

/**
 * ResizeVolume (spec C.36, of which the reference does nothing): makes the file system that is mounted at a path cover
 * `size` bytes of its disk, in whole blocks, while it is in use. Waits for a disk that the host has made larger at
 * this moment. A file system that has this size is left alone. Throws INVALID_ARGUMENT for a path where nothing is
 * mounted, UNIMPLEMENTED for a file system that cannot grow, OUT_OF_RANGE for a size below what it has.
 */
export async function resizeVolume(
  dependencies: ResizeDependencies,
  { volumeGuestPath, size: wantedBytes }: ResizeVolumeRequest,
  signal: AbortSignal,
): Promise<void> {
  const path = checkVolumePath(volumeGuestPath)
  const mount = await getMount(dependencies, path)
  const growth = growthOf(dependencies.volumes, mount)
  const disk = await diskOf(dependencies, mount)
  const volume = { mountPoint: path, device: disk.node }
  const { blockBytes, blocks } = await growth.size(volume)
  const wantedBlocks = wantedBytes / blockBytes
  if (wantedBlocks < blocks) {
    const text = `size ${wantedBytes}: the volume at ${path} has ${blocks * blockBytes} bytes, and can only grow`
    throw new AgentError('OUT_OF_RANGE', text)
  }
  if (wantedBlocks === blocks) return
  await waitForBytes(dependencies, disk, wantedBlocks * blockBytes, signal)
  await growth.grow(volume, wantedBlocks)
}

/** What is mounted there last: it hides what was before. */
async function getMount({ files, mounts }: ResizeDependencies, path: string): Promise<MountEntry> {
  const mount = (await mounts.list()).findLast(({ mountPoint }) => mountPoint === path)
  if (mount !== undefined) return mount
  if ((await files.stat(path)) === undefined) throw noSuchVolume(path)
  throw new AgentError('INVALID_ARGUMENT', `volume_guest_path ${path}: nothing is mounted there`)
}

function growthOf(volumes: Volumes, { type, mountPoint }: MountEntry): FileSystemGrowth {
  const growth = volumes.growth(type)
  if (growth !== undefined) return growth
  const text = `the volume at ${mountPoint} is ${type}, which cannot grow while it is mounted; ext4 and xfs can`
  throw new AgentError('UNIMPLEMENTED', text)
}

/** A block device: its node, and its folder in sysfs. */
interface Disk {
  readonly node: string
  readonly folder: string
}

async function diskOf({ files }: ResizeDependencies, { major, minor }: MountEntry): Promise<Disk> {
  const folder = `/sys/dev/block/${major}:${minor}`
  const name = /^DEVNAME=(.+)$/m.exec(await files.readText(`${folder}/uevent`))?.[1]
  if (name === undefined) throw new AgentError('INTERNAL', `${folder}/uevent names no device`)
  return { node: `/dev/${name}`, folder }
}

/** The host may have made the disk larger a moment ago; the driver tells the kernel when it has noticed. */
async function waitForBytes(
  dependencies: ResizeDependencies,
  { node, folder }: Disk,
  wantedBytes: bigint,
  signal: AbortSignal,
): Promise<void> {
  const { files } = dependencies
  const probe = async () => {
    const bytes = BigInt((await files.readText(`${folder}/size`)).trim()) * SECTOR_BYTES
    if (bytes >= wantedBytes) return { found: bytes }
    return { missing: `more than ${bytes} bytes` }
  }
  const matches = ({ subsystem }: { readonly subsystem: string }) => subsystem === 'block'
  const description = `${node} with ${wantedBytes} bytes`
  await rescan(dependencies, folder)
  await waitForDevice(dependencies, { description, probe, matches }, signal)
}

/** A SCSI disk looks at its size when it is told to; others have no such file. */
async function rescan({ files }: ResizeDependencies, folder: string): Promise<void> {
  const file = `${folder}/device/rescan`
  if ((await files.stat(file)) !== undefined) await files.write(file, '1')
}
