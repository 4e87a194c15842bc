import { zstdCompressSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { unpackedKernel } from '../../../src/image/kernel/kernel.ts'

/** A bzImage with one setup sector behind its first sector, and 8 bytes before the payload. */
function bzImage(payload: Buffer): Buffer {
  const image = Buffer.alloc(2 * 512 + 8)
  image.writeUInt8(1, 0x1f1)
  image.writeUInt32LE(8, 0x248)
  image.writeUInt32LE(payload.length, 0x24c)
  return Buffer.concat([image, payload, Buffer.from('behind the payload')])
}

describe('unpackedKernel', () => {
  it('unpacks a payload of zstd, which ends with its size', () => {
    const kernel = Buffer.from('\x7fELF and the rest')
    const size = Buffer.from([kernel.length, 0, 0, 0])
    expect(unpackedKernel(bzImage(Buffer.concat([zstdCompressSync(kernel), size])))).toEqual(kernel)
  })

  it('leaves another payload as it is', () => {
    expect(unpackedKernel(bzImage(Buffer.from('02214c18 of lz4')))).toBeUndefined()
  })
})
