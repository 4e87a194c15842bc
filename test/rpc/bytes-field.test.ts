import { describe, expect, it } from 'vitest'
import { ReadStreamResponse } from '../../src/gen/agent.ts'
import { encodeBytesField } from '../../src/rpc/bytes-field.ts'

describe('encodeBytesField', () => {
  // Around the sizes where the length takes another byte.
  it.each([0, 1, 127, 128, 16_383, 16_384, 65_536])(
    'encodes %i bytes as the generated code does',
    (count) => {
      const data = Buffer.alloc(count, 'bytes of output')
      const expected = ReadStreamResponse.encode({ data }).finish()
      expect(Buffer.compare(encodeBytesField(1, data), expected)).toBe(0)
    },
  )
})
