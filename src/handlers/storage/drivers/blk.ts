import { AgentError } from '../../../base/errors.ts'
import { waitForPciBlockDevice } from '../../../hotplug/block-device.ts'
import { parsePciPath } from '../../../hotplug/pci-path.ts'
import { blockDriver } from './block-driver.ts'

/** A virtio-blk disk, named by its PCI path or its device node (spec E.3). */
export const blk = blockDriver(async (source, { os, hotplug }, signal) => {
  if (!source.startsWith('/dev')) return waitForPciBlockDevice(hotplug, parsePciPath(source), signal)
  const kind = (await os.files.stat(source))?.kind
  if (kind === 'block') return source
  const text = `storage source ${source}: ${kind ?? 'nothing'}, not a block device`
  throw new AgentError('INVALID_ARGUMENT', text)
})
