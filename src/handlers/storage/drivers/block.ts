import { AgentError } from '../../../base/errors.ts'
import type { Storage } from '../../../gen/agent.ts'
import { waitForPciBlockDevice } from '../../../hotplug/block-device.ts'
import { waitForNamedBlockDevice } from '../../../hotplug/named-block-device.ts'
import { parsePciPath } from '../../../hotplug/pci-path.ts'
import { parseScsiAddress, waitForScsiDisk } from '../../../hotplug/scsi-disk.ts'
import type { Files } from '../../../os/files/files.ts'
import type { Tools } from '../../../os/process/tools.ts'
import type { StorageDependencies, StorageDriver } from '../driver.ts'
import { mountStorage } from '../mount-storage.ts'

/** Finds a disk by what a storage calls its source, and returns its device node. Waits for it if need be. */
type FindDisk = (source: string, dependencies: StorageDependencies, signal: AbortSignal) => Promise<string>

/** A driver of disks, which also finds one for others. */
export interface DiskDriver extends StorageDriver {
  readonly find: FindDisk
}

/** The driver of a kind of disk (spec E.3 and E.3.1): they differ in how the disk is found alone. */
function blockDriver(find: FindDisk): DiskDriver {
  return {
    find,

    async attach(storage, dependencies, signal) {
      const makeFirst = wantsFilesystem(storage)
      let disk = ''
      const source = async () => {
        disk = await find(storage.source, dependencies, signal)
        if (makeFirst) await makeFilesystem(dependencies.os.tools, disk, signal)
        return disk
      }
      await mountStorage({ ...storage, source }, dependencies, signal)
      const lost = () => lossOf(dependencies.os.files, disk)
      return { mountPoint: storage.mountPoint, kind: 'mount', keep: false, lost }
    },
  }
}

/** The kernel gives the name of a disk that was pulled out to no other one as long as it is mounted. */
async function lossOf(files: Files, disk: string): Promise<string | undefined> {
  return (await files.stat(disk))?.kind === 'block' ? undefined : `its disk ${disk} is gone`
}

/**
 * Whether the driver options ask for a new file system on the disk (spec E.3.1). Throws INVALID_ARGUMENT for any but
 * ext4.
 */
export function wantsFilesystem({ driverOptions, fstype, mountPoint }: Storage): boolean {
  const wanted = driverOptions.includes('create_filesystem')
  if (wanted && fstype !== 'ext4') {
    const text = `storage ${mountPoint}: create_filesystem makes ext4, not '${fstype}'`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  return wanted
}

/** Makes an ext4 without journal on a disk, whatever was on it: what needs one does not outlive the guest. */
export async function makeFilesystem(tools: Tools, disk: string, signal: AbortSignal): Promise<void> {
  const options = ['-O', '^has_journal', '-m', '0', '-i', '163840', '-I', '128', '-F']
  const result = await tools.run(['/sbin/mkfs.ext4', ...options, disk], { signal })
  if (result.exitCode !== 0) {
    throw new AgentError(
      'INTERNAL',
      `mkfs.ext4 ${disk}: exit code ${result.exitCode}: ${result.stderr.trim()}`,
    )
  }
}

/** A virtio-blk disk, named by its PCI path or its device node (spec E.3). */
export const blk = blockDriver(async (source, { os, hotplug }, signal) => {
  if (!source.startsWith('/dev')) return waitForPciBlockDevice(hotplug, parsePciPath(source), signal)
  const kind = (await os.files.stat(source))?.kind
  if (kind === 'block') return source
  const text = `storage source ${source}: ${kind ?? 'nothing'}, not a block device`
  throw new AgentError('INVALID_ARGUMENT', text)
})

/** A disk on virtio-mmio, where the host knows no more than the node it will get: `/dev/vdb` (spec E.3). */
export const mmioblk = blockDriver((source, { hotplug }, signal) =>
  waitForNamedBlockDevice(hotplug, source, signal),
)

/** A disk behind a SCSI controller, named by `ID:LUN` (spec E.3). */
export const scsi = blockDriver(async (source, { hotplug }, signal) =>
  waitForScsiDisk(hotplug, parseScsiAddress(source), signal),
)

/** Persistent memory as a disk, named by its node: `/dev/pmem0` (spec E.3). */
export const nvdimm = blockDriver(async (source, { hotplug }, signal) => {
  if (!/^\/dev\/pmem\d/.test(source)) {
    throw new AgentError('INVALID_ARGUMENT', `storage source '${source}' is not /dev/pmem and a number`)
  }
  return waitForNamedBlockDevice(hotplug, source, signal)
})
