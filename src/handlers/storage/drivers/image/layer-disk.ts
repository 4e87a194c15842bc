import { blk } from '../blk.ts'
import type { DiskDriver } from '../block-driver.ts'
import { mmioblk } from '../mmioblk.ts'
import { nvdimm } from '../nvdimm.ts'
import { scsi } from '../scsi.ts'
import { invalidLayer } from './layer-options.ts'

/** What a layer may be on. */
const DISKS: ReadonlyMap<string, DiskDriver> = new Map([
  ['blk', blk],
  ['erofs.multi-layer', blk],
  ['mmioblk', mmioblk],
  ['nvdimm', nvdimm],
  ['scsi', scsi],
])

/** The driver that finds a layer's disk. Throws INVALID_ARGUMENT for one that has no disks. */
export function layerDisk(driver: string, mountPoint: string): DiskDriver {
  const disk = DISKS.get(driver)
  if (disk === undefined) throw invalidLayer(mountPoint, `storage driver ${driver} has no disks`)
  return disk
}
