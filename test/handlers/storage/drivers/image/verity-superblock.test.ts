import { describe, expect, it } from 'vitest'
import {
  SUPERBLOCK_BYTES,
  verityTarget,
} from '../../../../../src/handlers/storage/drivers/image/verity-superblock.ts'

/** Of `veritysetup format --hash-offset 16384 --data-blocks 4 --salt aabbccdd`, without the zeros at its end. */
const WRITTEN =
  '7665726974790000010000000100000000112233445566778899aabbccddeeff' +
  '7368613235360000000000000000000000000000000000000000000000000000' +
  '001000000010000004000000000000000400000000000000aabbccdd'

const VERITY = { rootHash: 'ABCD', hashOffsetBytes: 16_384, salt: undefined }

describe('verityTarget', () => {
  it('makes of a superblock what the device mapper reads', () => {
    expect(verityTarget('/dev/vdb1', superblock(), VERITY)).toEqual({
      type: 'verity',
      sectors: 32n,
      parameters: '1 /dev/vdb1 /dev/vdb1 4096 4096 4 5 sha256 abcd aabbccdd',
    })
  })

  it('has a dash for a salt that is none', () => {
    const { parameters } = verityTarget(
      '/dev/a',
      superblock((bytes) => bytes.writeUInt16LE(0, 80)),
      VERITY,
    )
    expect(parameters).toMatch(/ abcd -$/)
  })

  it('takes the salt that the host says for granted, in either case', () => {
    expect(() => verityTarget('/dev/a', superblock(), { ...VERITY, salt: 'AABBCCDD' })).not.toThrow()
    expect(() => verityTarget('/dev/a', superblock(), { ...VERITY, salt: '00' })).toThrow('another salt')
  })

  it.each([
    ['nothing', (bytes: Buffer) => bytes.fill(0), 'there is no superblock'],
    ['another version', (bytes: Buffer) => bytes.writeUInt32LE(2, 8), 'another version than 1'],
    ['blocks of no size', (bytes: Buffer) => bytes.writeUInt32LE(0, 64), 'no block sizes'],
    ['blocks of an odd size', (bytes: Buffer) => bytes.writeUInt32LE(1000, 68), 'no block sizes'],
    ['no data', (bytes: Buffer) => bytes.writeBigUInt64LE(0n, 72), 'the data does not end before it'],
    [
      'data that reaches into the tree',
      (bytes: Buffer) => bytes.writeBigUInt64LE(5n, 72),
      'does not end before',
    ],
    ['no hash', (bytes: Buffer) => bytes.fill(0, 32, 64), 'names no hash'],
    ['a hash with a blank in its name', (bytes: Buffer) => bytes.write('a b', 32), 'names no hash'],
    ['a salt without end', (bytes: Buffer) => bytes.writeUInt16LE(257, 80), 'the salt is too long'],
  ])('refuses %s', (_, change, reason) => {
    expect(() => verityTarget('/dev/vdb1', superblock(change), VERITY)).toThrow(
      `/dev/vdb1: dm-verity at 16384: `,
    )
    expect(() => verityTarget('/dev/vdb1', superblock(change), VERITY)).toThrow(reason)
  })

  it('refuses a device that ends in the middle of it', () => {
    expect(() => verityTarget('/dev/a', superblock().subarray(0, 100), VERITY)).toThrow(
      'there is no superblock',
    )
  })
})

function superblock(change: (bytes: Buffer) => unknown = () => {}): Buffer {
  const bytes = Buffer.alloc(SUPERBLOCK_BYTES)
  bytes.write(WRITTEN, 'hex')
  change(bytes)
  return bytes
}
