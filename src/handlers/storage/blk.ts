import { AgentError } from '../../base/errors.ts'
import type { Storage } from '../../gen/agent.ts'
import { waitForPciBlockDevice } from '../../hotplug/block-device.ts'
import { parsePciPath } from '../../hotplug/pci-path.ts'
import { makeFilesystem, wantsFilesystem } from './block-filesystem.ts'
import type { StorageDependencies, StorageDriver } from './driver.ts'
import { mountStorage } from './mount-storage.ts'

/** A virtio-blk disk, named by its PCI path or its device node (spec E.3 and E.3.1). */
export const blk: StorageDriver = {
  async attach(storage, dependencies, signal) {
    const makeFirst = wantsFilesystem(storage)
    const source = await findDisk(storage, dependencies, signal)
    if (makeFirst) await makeFilesystem(dependencies.os.tools, source, signal)
    await mountStorage({ ...storage, source }, dependencies, signal)
    return { mountPoint: storage.mountPoint, kind: 'mount', keep: false }
  },
}

async function findDisk(
  { source }: Storage,
  { os, hotplug }: StorageDependencies,
  signal: AbortSignal,
): Promise<string> {
  if (!source.startsWith('/dev')) {
    return waitForPciBlockDevice(hotplug, parsePciPath(source), signal)
  }
  const kind = (await os.files.stat(source))?.kind
  if (kind !== 'block') {
    throw new AgentError(
      'INVALID_ARGUMENT',
      `storage source ${source}: ${kind ?? 'nothing'}, not a block device`,
    )
  }
  return source
}
