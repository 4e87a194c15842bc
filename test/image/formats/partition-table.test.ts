import { describe, expect, it } from 'vitest'
import {
  type Partition,
  partitionTable,
  readPartitionTable,
} from '../../../src/image/formats/partition-table.ts'

const MEBIBYTE = 2 ** 20
const DISK_BYTES = 64 * MEBIBYTE

const first: Partition = { number: 1, startBytes: 3 * MEBIBYTE, sizeBytes: MEBIBYTE }
const second: Partition = { number: 2, startBytes: 4 * MEBIBYTE, sizeBytes: 2 * MEBIBYTE }

describe('partitionTable', () => {
  it('writes the recorded bytes, which sfdisk reads', () => {
    const sector = Buffer.from(partitionTable([first, second], 0x6d766d61))
    expect(sector.toString('hex')).toBe(
      [
        '00'.repeat(440),
        '616d766d0000',
        '00feffff83feffff0018000000080000',
        '00feffff83feffff0020000000100000',
        '00'.repeat(32),
        '55aa',
      ].join(''),
    )
  })

  it.each([
    ['half a sector', { ...first, sizeBytes: 256 }],
    ['nothing', { ...first, sizeBytes: 0 }],
    ['more than 2 TiB', { ...first, startBytes: 2 ** 42 }],
  ])('refuses %s', (_name, partition) => {
    expect(() => partitionTable([partition], 0)).toThrow('not expressible in a partition table')
  })
})

describe('readPartitionTable', () => {
  it('returns what was written', () => {
    expect(readPartitionTable(partitionTable([first, second], 0), DISK_BYTES)).toEqual([first, second])
  })

  it('skips an unused entry', () => {
    expect(readPartitionTable(partitionTable([second], 0), DISK_BYTES)).toEqual([second])
  })

  const entry = (type: number, start: number, sectors: number) => {
    const sector = Buffer.from(partitionTable([first], 0))
    sector.writeUInt8(type, 450)
    sector.writeUInt32LE(start, 454)
    sector.writeUInt32LE(sectors, 458)
    return sector
  }

  it.each<[string, Uint8Array, number, string]>([
    ['a file that is too short', Buffer.alloc(100), 100, 'partition table: 100 bytes, want 512'],
    ['zeroes', Buffer.alloc(512), DISK_BYTES, 'partition table: no signature 55aa at byte 510'],
    ['a table without entries', partitionTable([], 0), DISK_BYTES, 'partition table: no partitions'],
    ['a GPT', entry(0xee, 1, 0xffff_ffff), DISK_BYTES, 'partition table: is a GPT, want an MBR'],
    [
      'an empty partition',
      entry(0x83, 2048, 0),
      DISK_BYTES,
      'partition 1: 0 bytes, want at least one sector',
    ],
    [
      'a partition in place of the table',
      entry(0x83, 0, 8),
      DISK_BYTES,
      'partition 1: starts at byte 0, where the table itself is',
    ],
    [
      'a truncated disk',
      partitionTable([first], 0),
      4 * MEBIBYTE - 1,
      'partition 1: ends at byte 4194304, but the disk has only 4194303 bytes',
    ],
    [
      'the largest numbers',
      entry(0x83, 0xffff_ffff, 0xffff_ffff),
      DISK_BYTES,
      'partition 1: ends at byte 4398046510080, but',
    ],
    [
      'partitions that overlap',
      partitionTable(
        [
          { ...second, number: 1, startBytes: 5 * MEBIBYTE },
          { ...second, number: 2 },
        ],
        0,
      ),
      DISK_BYTES,
      'partition 1: overlaps partition 2',
    ],
    [
      'the same partition twice',
      partitionTable([first, { ...first, number: 4 }], 0),
      DISK_BYTES,
      'partition 4: overlaps partition 1',
    ],
  ])('refuses %s', (_name, sector, diskBytes, reason) => {
    expect(() => readPartitionTable(sector, diskBytes)).toThrow(reason)
  })
})
