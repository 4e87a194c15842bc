export const SECTOR_BYTES = 512

/** A primary partition of a disk, in bytes from the start of the disk. */
export interface Partition {
  /** From 1: the number at the end of the device's name, such as vda1. */
  readonly number: number
  readonly startBytes: number
  readonly sizeBytes: number
}

const SIGNATURE_OFFSET = 510
const SIGNATURE = Buffer.from('55aa', 'hex')
const ENTRIES_OFFSET = 446
const ENTRY_BYTES = 16
const ENTRIES = 4
const LINUX = 0x83
const GPT_PROTECTIVE = 0xee
/** Cylinder, head and sector of a place that they cannot express: the sector numbers count alone. */
const NO_GEOMETRY = Buffer.from('feffff', 'hex')
const LARGEST_SECTOR = 2 ** 32 - 1

/** A master boot record with `partitions`, which lie on whole sectors. `diskId` is the disk's four-byte signature. */
export function partitionTable(partitions: readonly Partition[], diskId: number): Uint8Array {
  const sector = Buffer.alloc(SECTOR_BYTES)
  sector.writeUInt32LE(diskId, 440)
  for (const { number, startBytes, sizeBytes } of partitions) {
    const offset = ENTRIES_OFFSET + (number - 1) * ENTRY_BYTES
    NO_GEOMETRY.copy(sector, offset + 1)
    sector.writeUInt8(LINUX, offset + 4)
    NO_GEOMETRY.copy(sector, offset + 5)
    sector.writeUInt32LE(wholeSectors(startBytes), offset + 8)
    sector.writeUInt32LE(wholeSectors(sizeBytes), offset + 12)
  }
  SIGNATURE.copy(sector, SIGNATURE_OFFSET)
  return sector
}

function wholeSectors(bytes: number): number {
  const sectors = bytes / SECTOR_BYTES
  if (Number.isInteger(sectors) && sectors > 0 && sectors <= LARGEST_SECTOR) return sectors
  throw new Error(`${bytes} bytes: not expressible in a partition table, want 1 to 2^32 - 1 sectors of 512`)
}

/** Whether `sector`, the first of a disk, ends in the signature of a master boot record. */
export function hasPartitionTable(sector: Uint8Array): boolean {
  return SIGNATURE.equals(sector.subarray(SIGNATURE_OFFSET, SECTOR_BYTES))
}

/**
 * The partitions in `sector`, the first of a disk of `diskBytes`. Throws for a sector that is no master boot record, for
 * a table without partitions, and for a partition that is empty, reaches beyond the disk, or overlaps another.
 */
export function readPartitionTable(
  sector: Uint8Array,
  diskBytes: number,
): readonly [Partition, ...(readonly Partition[])] {
  if (sector.length < SECTOR_BYTES)
    throw new Error(`partition table: ${sector.length} bytes, want ${SECTOR_BYTES}`)
  if (!hasPartitionTable(sector)) throw new Error('partition table: no signature 55aa at byte 510')
  const entries = Buffer.from(sector).subarray(ENTRIES_OFFSET, SIGNATURE_OFFSET)
  const partitions = Array.from({ length: ENTRIES }, (_, index) => index)
    .filter((index) => entries.readUInt8(index * ENTRY_BYTES + 4) !== 0)
    .map((index) => {
      const entry = entries.subarray(index * ENTRY_BYTES, (index + 1) * ENTRY_BYTES)
      if (entry.readUInt8(4) === GPT_PROTECTIVE) throw new Error('partition table: is a GPT, want an MBR')
      return {
        number: index + 1,
        startBytes: entry.readUInt32LE(8) * SECTOR_BYTES,
        sizeBytes: entry.readUInt32LE(12) * SECTOR_BYTES,
      }
    })
  const [first, ...others] = partitions
  if (first === undefined) throw new Error('partition table: no partitions')
  for (const partition of partitions) checkPlace(partition, diskBytes)
  checkOverlaps(partitions)
  return [first, ...others]
}

function checkPlace({ number, startBytes, sizeBytes }: Partition, diskBytes: number): void {
  if (sizeBytes === 0) throw new Error(`partition ${number}: 0 bytes, want at least one sector`)
  if (startBytes === 0) throw new Error(`partition ${number}: starts at byte 0, where the table itself is`)
  const end = startBytes + sizeBytes
  if (end > diskBytes)
    throw new Error(`partition ${number}: ends at byte ${end}, but the disk has only ${diskBytes} bytes`)
}

function checkOverlaps(partitions: readonly Partition[]): void {
  const sorted = partitions.toSorted((a, b) => a.startBytes - b.startBytes)
  for (const [index, partition] of sorted.entries()) {
    const next = sorted[index + 1]
    if (next !== undefined && next.startBytes < partition.startBytes + partition.sizeBytes)
      throw new Error(`partition ${next.number}: overlaps partition ${partition.number}`)
  }
}
