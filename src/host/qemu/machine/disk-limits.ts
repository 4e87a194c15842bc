import type { Machine } from '../../machine/machine.ts'
import type { QmpCommand } from '../parts.ts'
import { qemuName } from './addresses.ts'
import type { Backends } from './as-spec.ts'

/** A disk with limits; 0 is none. */
export interface LimitedDisk {
  readonly backend: string
  /** The device's id or path in QEMU. */
  readonly device: string
  readonly iops: number
  readonly bytesPerSecond: number
}

export function limitedDisks({ devices }: Machine, backends: Backends): readonly LimitedDisk[] {
  return Object.entries(devices).flatMap(([key, { backend = '', model }]) => {
    const disk = backends[backend]
    if ((disk?.kind !== 'file' && disk?.kind !== 'network-disk') || disk.limits === undefined) return []
    const { bytesPerSecond = 0, iopsTotal: iops = 0 } = disk.limits
    // The disk is a child of the device on PCI.
    const inner = model.startsWith('virtio-')
      ? `/machine/peripheral/${qemuName(key)}/virtio-backend`
      : qemuName(key)
    return [{ backend, device: inner, iops, bytesPerSecond }]
  })
}

/** Limits of the device itself: a node above the disk's others would keep block-commit from merging snapshots. */
export function throttleCommand({ bytesPerSecond: bps, device: id, iops }: LimitedDisk): QmpCommand {
  const parts = { bps_rd: 0, bps_wr: 0, iops_rd: 0, iops_wr: 0 }
  return { execute: 'block_set_io_throttle', arguments: { id, bps, iops, ...parts } }
}
