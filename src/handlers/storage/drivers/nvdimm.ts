import { AgentError } from '../../../base/errors.ts'
import { waitForNamedBlockDevice } from '../../../hotplug/named-block-device.ts'
import { blockDriver } from './block-driver.ts'

/** Persistent memory as a disk, named by its node: `/dev/pmem0` (spec E.3). */
export const nvdimm = blockDriver(async (source, { hotplug }, signal) => {
  if (!/^\/dev\/pmem\d/.test(source)) {
    throw new AgentError('INVALID_ARGUMENT', `storage source '${source}' is not /dev/pmem and a number`)
  }
  return waitForNamedBlockDevice(hotplug, source, signal)
})
