import { AgentError } from '../../base/errors.ts'
import type { ResizeVolumeRequest } from '../../gen/agent.ts'
import { type Hotplug, waitForDevice } from '../../hotplug/wait-for-device.ts'
import type { FileSystemGrowth } from '../../os/devices/volumes/growth.ts'
import type { Volumes } from '../../os/devices/volumes/volumes.ts'
import type { MountEntry, Mounts } from '../../os/files/mounts.ts'
import { checkVolumePath, noSuchVolume } from './volume-stats.ts'

export interface ResizeContext extends Hotplug {
  readonly mounts: Mounts
  readonly volumes: Volumes
}

/** The unit of sizes in /sys/dev/block, whatever the sector size of the device. */
const SECTOR_BYTES = 512n

/** How long to wait for the disk: callers wait 3 s for the answer, and the last look at the disk may take 0.5 s. */
const DISK_MS = 2000

/**
 * ResizeVolume: grows the file system mounted at a path to `size` bytes, rounded down to whole blocks, once the kernel has
 * noticed the larger disk. Throws INVALID_ARGUMENT for a path that is no mount point, UNIMPLEMENTED for a file system that
 * cannot grow, OUT_OF_RANGE for less than the current size.
 */
export async function resizeVolume(
  dependencies: ResizeContext,
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
    const text = `size: ${wantedBytes} bytes, want at least ${blocks * blockBytes}, the current size of ${path}`
    throw new AgentError('OUT_OF_RANGE', text)
  }
  if (wantedBlocks === blocks) return
  await waitForBytes(dependencies, disk, wantedBlocks * blockBytes, signal)
  await growth.grow(volume, wantedBlocks)
}

/** The last mount at a path, which hides earlier ones. */
async function getMount({ files, mounts }: ResizeContext, path: string): Promise<MountEntry> {
  const mount = (await mounts.list()).findLast(({ mountPoint }) => mountPoint === path)
  if (mount !== undefined) return mount
  if ((await files.stat(path)) === undefined) throw noSuchVolume(path)
  throw new AgentError('INVALID_ARGUMENT', `volume_guest_path ${path}: not a mount point`)
}

function growthOf(volumes: Volumes, { type, mountPoint }: MountEntry): FileSystemGrowth {
  const growth = volumes.growth(type)
  if (growth !== undefined) return growth
  const text = `volume_guest_path ${mountPoint}: ${type} cannot grow while mounted, want ext4 or xfs`
  throw new AgentError('UNIMPLEMENTED', text)
}

interface Disk {
  readonly node: string
  readonly folder: string
}

async function diskOf({ files }: ResizeContext, { major, minor }: MountEntry): Promise<Disk> {
  const folder = `/sys/dev/block/${major}:${minor}`
  const name = /^DEVNAME=(.+)$/m.exec(await files.readText(`${folder}/uevent`))?.[1]
  if (name === undefined) throw new AgentError('INTERNAL', `${folder}/uevent: no DEVNAME`)
  return { node: `/dev/${name}`, folder }
}

/** Waits until the disk has the wanted size: the driver may notice late that the host has enlarged it. */
async function waitForBytes(
  dependencies: ResizeContext,
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
  const timeoutMs = Math.min(dependencies.timeoutMs, DISK_MS)
  await waitForDevice({ ...dependencies, timeoutMs }, { description, probe, matches }, signal)
}

/** Makes a SCSI disk read its size again; other disks have no such file. */
async function rescan({ files }: ResizeContext, folder: string): Promise<void> {
  const file = `${folder}/device/rescan`
  if ((await files.stat(file)) !== undefined) await files.write(file, '1')
}
