import { describe, expect, it } from 'vitest'
import { layerTarget, SUPERBLOCK_BYTES } from '../../../../src/handlers/storage/drivers/image/verity.ts'

/** Output of `veritysetup format --hash-offset 16384 --data-blocks 4 --salt aabbccdd`, without the zeros at its end. */
const WRITTEN =
  '7665726974790000010000000100000000112233445566778899aabbccddeeff' +
  '7368613235360000000000000000000000000000000000000000000000000000' +
  '001000000010000004000000000000000400000000000000aabbccdd'

const VERITY = { rootHash: 'ABCD', hashOffsetBytes: 16_384, salt: undefined }

describe('layerTarget', () => {
  it('creates the device-mapper table line from a superblock', () => {
    expect(layerTarget('/dev/vdb1', superblock(), VERITY)).toEqual({
      type: 'verity',
      sectors: 32n,
      parameters: '1 /dev/vdb1 /dev/vdb1 4096 4096 4 5 sha256 abcd aabbccdd',
    })
  })

  it('has a dash for an empty salt', () => {
    const { parameters } = layerTarget(
      '/dev/a',
      superblock((bytes) => bytes.writeUInt16LE(0, 80)),
      VERITY,
    )
    expect(parameters).toMatch(/ abcd -$/)
  })

  it('accepts the salt of the host in upper and lower case', () => {
    expect(() => layerTarget('/dev/a', superblock(), { ...VERITY, salt: 'AABBCCDD' })).not.toThrow()
    expect(() => layerTarget('/dev/a', superblock(), { ...VERITY, salt: '00' })).toThrow('the salt differs')
  })

  it.each([
    ['nothing', (bytes: Buffer) => bytes.fill(0), 'no superblock'],
    ['another version', (bytes: Buffer) => bytes.writeUInt32LE(2, 8), 'unknown superblock version, want 1'],
    ['blocks of no size', (bytes: Buffer) => bytes.writeUInt32LE(0, 64), 'invalid block sizes'],
    ['blocks of an odd size', (bytes: Buffer) => bytes.writeUInt32LE(1000, 68), 'invalid block sizes'],
    ['no data', (bytes: Buffer) => bytes.writeBigUInt64LE(0n, 72), 'the data overlaps the superblock'],
    [
      'data that reaches into the tree',
      (bytes: Buffer) => bytes.writeBigUInt64LE(5n, 72),
      'the data overlaps the superblock',
    ],
    ['no hash', (bytes: Buffer) => bytes.fill(0, 32, 64), 'invalid hash name'],
    ['a hash with a blank in its name', (bytes: Buffer) => bytes.write('a b', 32), 'invalid hash name'],
    ['a salt without end', (bytes: Buffer) => bytes.writeUInt16LE(257, 80), 'the salt is too long'],
  ])('refuses %s', (_, change, reason) => {
    expect(() => layerTarget('/dev/vdb1', superblock(change), VERITY)).toThrow(
      `/dev/vdb1: dm-verity at 16384: `,
    )
    expect(() => layerTarget('/dev/vdb1', superblock(change), VERITY)).toThrow(reason)
  })

  it('refuses a device that ends inside the superblock', () => {
    expect(() => layerTarget('/dev/a', superblock().subarray(0, 100), VERITY)).toThrow('no superblock')
  })
})

function superblock(change: (bytes: Buffer) => unknown = () => {}): Buffer {
  const bytes = Buffer.alloc(SUPERBLOCK_BYTES)
  bytes.write(WRITTEN, 'hex')
  change(bytes)
  return bytes
}
