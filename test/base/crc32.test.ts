import { randomBytes } from 'node:crypto'
import { crc32 as ofZlib } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { crc32 } from '../../src/base/crc32.ts'

describe('crc32', () => {
  it('has the check value of the standard', () => {
    expect(crc32(Buffer.from('123456789'))).toBe(0xcbf43926)
  })

  it('is the checksum of zlib, of a whole and of what follows a beginning', () => {
    for (let length = 0; length < 600; length += 7) {
      const bytes = randomBytes(length)
      const rest = bytes.subarray(length >> 1)
      expect(crc32(bytes), bytes.toString('hex')).toBe(ofZlib(bytes))
      expect(crc32(rest, crc32(bytes.subarray(0, length >> 1)))).toBe(ofZlib(bytes))
    }
  })
})
