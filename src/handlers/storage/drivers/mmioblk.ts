import { waitForNamedBlockDevice } from '../../../hotplug/named-block-device.ts'
import { blockDriver } from './block-driver.ts'

/** A disk on virtio-mmio, where the host knows no more than the node it will get: `/dev/vdb` (spec E.3). */
export const mmioblk = blockDriver((source, { hotplug }, signal) =>
  waitForNamedBlockDevice(hotplug, source, signal),
)
