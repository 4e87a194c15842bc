import { AgentError } from '../../../base/errors.ts'
import { inStep } from '../../../base/step.ts'
import type { Storage } from '../../../gen/agent.ts'
import { waitForPciBlockDevice } from '../../../hotplug/block-device.ts'
import { waitForNamedBlockDevice } from '../../../hotplug/named-block-device.ts'
import { parsePciPath } from '../../../hotplug/pci/pci-path.ts'
import { parseScsiAddress, waitForScsiDisk } from '../../../hotplug/scsi-disk.ts'
import type { Files } from '../../../os/files/files.ts'
import type { Tools } from '../../../os/process/tools.ts'
import type { StorageContext, StorageDriver } from '../driver.ts'
import { mountStorage } from '../mount-storage.ts'

type WaitForDisk = (source: string, dependencies: StorageContext, signal: AbortSignal) => Promise<string>

export interface DiskDriver extends StorageDriver {
  readonly waitFor: WaitForDisk
}

export function isDiskDriver(driver: StorageDriver): driver is DiskDriver {
  return 'waitFor' in driver
}

/** The kinds of disks differ only in how the disk is found. */
function blockDriver(waitFor: WaitForDisk): DiskDriver {
  return {
    waitFor,

    async attach(storage, dependencies, signal) {
      const newFilesystem = wantsFilesystem(storage)
      let disk = ''
      const source = async () => {
        disk = await waitFor(storage.source, dependencies, signal)
        if (newFilesystem) await makeFilesystem(dependencies.os.tools, disk, signal)
        return disk
      }
      await mountStorage({ ...storage, source }, dependencies, signal)
      const fault = () => diskFault(dependencies.os.files, disk)
      return { mountPoint: storage.mountPoint, kind: 'mount', keep: false, device: disk, fault }
    },

    restore: async (_storage, { device = '' }, { os }) => ({ fault: () => diskFault(os.files, device) }),
  }
}

/** The kernel does not reuse the name of a removed disk while the disk is mounted. */
async function diskFault(files: Files, disk: string): Promise<string | undefined> {
  return (await files.stat(disk))?.kind === 'block' ? undefined : `disk ${disk} was removed`
}

/** Throws INVALID_ARGUMENT when `create_filesystem` is given for another file system than ext4. */
export function wantsFilesystem({ driverOptions, fstype, mountPoint }: Storage): boolean {
  const wanted = driverOptions.includes('create_filesystem')
  if (wanted && fstype !== 'ext4') {
    const text = `storage ${mountPoint}: create_filesystem: fstype "${fstype}", want ext4`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  return wanted
}

/** Destroys the disk's content. No journal: the data does not outlive the guest. Throws INTERNAL with mkfs's output. */
export async function makeFilesystem(tools: Tools, disk: string, signal: AbortSignal): Promise<void> {
  const options = ['-O', '^has_journal', '-m', '0', '-i', '163840', '-I', '128', '-F']
  const result = await inStep('program', `mkfs.ext4 ${disk}`, () =>
    tools.run(['/sbin/mkfs.ext4', ...options, disk], { signal }),
  )
  if (result.exitCode !== 0) {
    throw new AgentError(
      'INTERNAL',
      `mkfs.ext4 ${disk}: exit code ${result.exitCode}: ${result.stderr.trim()}`,
    )
  }
}

/** A virtio-blk disk. Waits for a PCI path; a device node must exist. */
export const blk = blockDriver(async (source, { os, hotplug }, signal) => {
  if (!source.startsWith('/dev')) return waitForPciBlockDevice(hotplug, parsePciPath(source), signal)
  const kind = (await os.files.stat(source))?.kind
  if (kind === 'block') return source
  const text = `storage source ${source}: ${kind === undefined ? 'no such device' : `is a ${kind}`}, want a block device`
  throw new AgentError('INVALID_ARGUMENT', text)
})

/** A virtio-mmio disk, named by the node that it will get, such as `/dev/vdb`. */
export const mmioblk = blockDriver((source, { hotplug }, signal) =>
  waitForNamedBlockDevice(hotplug, source, signal),
)

/** A disk behind a SCSI controller, named by `ID:LUN`. */
export const scsi = blockDriver(async (source, { hotplug }, signal) =>
  waitForScsiDisk(hotplug, parseScsiAddress(source), signal),
)

/** Persistent memory as a disk, named by its node: `/dev/pmem0`. */
export const nvdimm = blockDriver(async (source, { hotplug }, signal) => {
  if (!/^\/dev\/pmem\d/.test(source)) {
    throw new AgentError(
      'INVALID_ARGUMENT',
      `storage source "${source}": not a persistent memory device, want /dev/pmemN`,
    )
  }
  return waitForNamedBlockDevice(hotplug, source, signal)
})
