import type { DiskDriver } from '../block.ts'
import { blk, mmioblk, nvdimm, scsi } from '../block.ts'
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
