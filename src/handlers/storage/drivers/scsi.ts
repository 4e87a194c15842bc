import { parseScsiAddress, waitForScsiDisk } from '../../../hotplug/scsi-disk.ts'
import { blockDriver } from './block-driver.ts'

/** A disk behind a SCSI controller, named by `ID:LUN` (spec E.3). */
export const scsi = blockDriver(async (source, { hotplug }, signal) =>
  waitForScsiDisk(hotplug, parseScsiAddress(source), signal),
)
