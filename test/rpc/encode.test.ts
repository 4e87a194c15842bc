import { describe, expect, it } from 'vitest'
import { CheckRequest } from '../../src/gen/health.ts'
import { encode } from '../../src/rpc/encode.ts'

describe('encode', () => {
  it('gives what a writer of its own gives, also after a long message and after a failure', () => {
    const short = { service: 'short' }
    const long = { service: 'x'.repeat(10_000) }
    const failing = {
      encode: (_: unknown, writer?: Parameters<typeof CheckRequest.encode>[1]) => {
        writer?.uint32(7)
        throw new Error('no such value')
      },
    }
    for (const message of [short, long, short]) {
      expect(encode(CheckRequest, message)).toEqual(CheckRequest.encode(message).finish())
      expect(() => encode(failing, short)).toThrow('no such value')
    }
  })

  it('gives bytes that later messages leave alone', () => {
    const first = encode(CheckRequest, { service: 'first' })
    encode(CheckRequest, { service: 'other' })
    expect(CheckRequest.decode(first)).toEqual({ service: 'first' })
  })
})
