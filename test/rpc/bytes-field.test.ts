import { describe, expect, it } from 'vitest'
import { bytesOf } from '../../src/base/stored-bytes.ts'
import { ReadStreamResponse } from '../../src/gen/agent.ts'
import { bytesFieldEncoder, encodeBytesField } from '../../src/rpc/bytes-field.ts'

describe('encodeBytesField', () => {
  // At these sizes the encoded length grows by a byte.
  it.each([0, 1, 127, 128, 16_383, 16_384, 65_536])(
    'encodes %i bytes as the generated code does',
    (count) => {
      const data = Buffer.alloc(count, 'bytes of output')
      const expected = ReadStreamResponse.encode({ data }).finish()
      const { payload, bulk = Buffer.alloc(0) } = encodeBytesField(1, data)
      expect(Buffer.concat([payload, bytesOf(bulk)]).equals(expected)).toBe(true)
      const encode = bytesFieldEncoder(1)
      for (const bytes of [data, Buffer.alloc(3, 'x'), data, Buffer.alloc(10, 'y')])
        expect(ReadStreamResponse.decode(encode(bytes))).toEqual({ data: bytes })
    },
  )

  it('reads stored data only where they are short', () => {
    const stored = (length: number) => ({ length, place: undefined, read: () => Buffer.alloc(length, 'x') })
    const long = stored(4096)
    expect(encodeBytesField(1, long).bulk).toBe(long)
    expect(Buffer.from(encodeBytesField(1, stored(3)).payload).toString()).toBe('\n\u0003xxx')
    expect(encodeBytesField(1, stored(0))).toEqual({ payload: new Uint8Array(0) })
  })

  it('does not copy large data', () => {
    const data = Buffer.alloc(4096)
    expect(encodeBytesField(1, data).bulk).toBe(data)
    expect(encodeBytesField(1, data.subarray(1)).bulk).toBeUndefined()
  })
})
