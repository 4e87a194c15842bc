import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { readPartitionTable } from '../../../src/image/formats/partition-table.ts'
import {
  directAccessMetadata,
  fletcher64,
  LAYOUT,
  partitionedImage,
  writePartitionedImage,
} from '../../../src/image/formats/partitioned-image.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const MEBIBYTE = 2 ** 20

describe('partitionedImage', () => {
  it.each([
    [1, 4],
    [MEBIBYTE, 4],
    [MEBIBYTE + 1, 6],
    [155 * MEBIBYTE, 158],
  ])('surrounds a root of %i bytes by an image of %i MiB', (rootBytes, mebibytes) => {
    expect(partitionedImage(rootBytes).sizeBytes).toBe(mebibytes * MEBIBYTE)
  })

  it('names the same place in both partition tables', () => {
    const { head, sizeBytes } = partitionedImage(10 * MEBIBYTE)
    const partition = { number: 1, sizeBytes: sizeBytes - 3 * MEBIBYTE }
    expect(readPartitionTable(head, sizeBytes)).toEqual([{ ...partition, startBytes: 3 * MEBIBYTE }])
    const behind = head.subarray(LAYOUT.persistentMemory)
    expect(readPartitionTable(behind, sizeBytes - LAYOUT.persistentMemory)).toEqual([
      { ...partition, startBytes: MEBIBYTE },
    ])
  })

  it('is zero outside of the tables and the metadata', () => {
    const { head } = partitionedImage(10 * MEBIBYTE)
    const rest = Buffer.from(head)
    for (const [start, length] of [
      [0, 512],
      [LAYOUT.metadata, 4096],
      [LAYOUT.persistentMemory, 512],
    ] as const)
      rest.fill(0, start, start + length)
    expect(rest.equals(Buffer.alloc(3 * MEBIBYTE))).toBe(true)
  })
})

describe('directAccessMetadata', () => {
  it('writes the recorded bytes, which the kernel accepts', () => {
    const block = Buffer.from(directAccessMetadata())
    expect(block.subarray(0, 94).toString('hex')).toBe(
      [
        '4e5644494d4d5f50464e5f494e464f00', // NVDIMM_PFN_INFO
        '6d766167656e40008000706d656d726f', // UUID
        '00000000000000000000000000000000', // UUID of the parent
        '0000000001000400', // flags, version
        '0000200000000000', // offset of the data
        '0000000000000000', // number of pages
        '010000000000000000000000', // mode, padding at the start and at the end
        '00002000', // alignment
        '001000004000', // sizes of a page and of its description
      ].join(''),
    )
    expect(block.subarray(94, 4088).equals(Buffer.alloc(3994))).toBe(true)
    expect(block.subarray(4088).toString('hex')).toBe('289b1a28ee7a4246')
  })

  it('has the checksum of its other bytes', () => {
    const block = Buffer.from(directAccessMetadata())
    const checksum = block.readBigUInt64LE(4088)
    block.fill(0, 4088)
    expect(fletcher64(block)).toBe(checksum)
  })
})

describe('fletcher64', () => {
  it.each([
    ['nothing', '', 0n],
    ['two words', '0100000002000000', 0x4_0000_0003n],
    ['sums that overflow', 'ffffffffffffffff02000000', 0xfffffffd_00000000n],
  ])('of %s', (_name, hex, sum) => {
    expect(fletcher64(Buffer.from(hex, 'hex'))).toBe(sum)
  })
})

describe('writePartitionedImage', () => {
  let folder: string
  beforeEach(() => {
    folder = temporaryFolder()
  })

  it('puts the root behind the head and fills up with zeroes', async () => {
    const root = Buffer.alloc(5 * MEBIBYTE + 7, 'root')
    writeFileSync(join(folder, 'root'), root)
    await writePartitionedImage(join(folder, 'image'), join(folder, 'root'))
    const image = readFileSync(join(folder, 'image'))
    const { head, sizeBytes } = partitionedImage(root.length)
    expect(
      image.equals(Buffer.concat([head, root, Buffer.alloc(sizeBytes - head.length - root.length)])),
    ).toBe(true)
  })
})
