import { describe, expect, it } from 'vitest'
import { ReadStreamResponse } from '../../src/gen/agent.ts'
import { encodeBytesField } from '../../src/rpc/bytes-field.ts'

describe('encodeBytesField', () => {
  // Sizes around which the encoded length grows by a byte.
  it.each([0, 1, 127, 128, 16_383, 16_384, 65_536])(
    'encodes %i bytes as the generated code does',
    (count) => {
      const data = Buffer.alloc(count, 'bytes of output')
      const expected = ReadStreamResponse.encode({ data }).finish()
      const { payload, bulk = Buffer.alloc(0) } = encodeBytesField(1, data)
      expect(Buffer.concat([payload, bulk]).equals(expected)).toBe(true)
    },
  )

  it('does not copy large data', () => {
    const data = Buffer.alloc(4096)
    expect(encodeBytesField(1, data).bulk).toBe(data)
    expect(encodeBytesField(1, data.subarray(1)).bulk).toBeUndefined()
  })
})
