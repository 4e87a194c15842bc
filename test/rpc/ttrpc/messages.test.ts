import { describe, expect, it } from 'vitest'
import {
  decodeRequest,
  decodeResponse,
  encodeErrorFrame,
  encodeRequestFrame,
  encodeResponseFrame,
  responseBytes,
  timeoutMsOf,
  timeoutNanoOf,
} from '../../../src/rpc/ttrpc/messages.ts'
import { GO_REQUEST, GO_REQUEST_WITHOUT_PAYLOAD } from '../../fixtures/ttrpc-frames.ts'

const payloadOf = (frame: Buffer) => frame.subarray(10)

describe('decodeRequest', () => {
  it('reads a request of the Go client', () => {
    expect(decodeRequest(payloadOf(GO_REQUEST))).toEqual({
      service: 'test.Echo',
      method: 'Echo',
      payload: Buffer.from('0a0568656c6c6f', 'hex'),
      timeoutNano: 89_999_985_689n,
      known: new Map([['traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01']]),
    })
    expect(decodeRequest(payloadOf(GO_REQUEST_WITHOUT_PAYLOAD))).toMatchObject({
      method: 'Echo',
      timeoutNano: 0n,
    })
  })

  it('reads the metadata of names that it knows, and the trace context if it is short', () => {
    const request = { service: 's', method: 'm', payload: new Uint8Array(0), timeoutNano: 0n }
    const read = (metadata: Record<string, string>) =>
      decodeRequest(payloadOf(encodeRequestFrame(1, request, metadata))).known?.get('traceparent')
    const more = { 'idempotency-key': 'k', 'output-read': 'r 1', other: 'x' }
    expect(decodeRequest(payloadOf(encodeRequestFrame(1, request, more))).known).toEqual(
      new Map([
        ['idempotency-key', 'k'],
        ['output-read', 'r 1'],
      ]),
    )
    expect(read({ a: 'b', traceparent: 'x'.repeat(64), c: 'd' })).toBe('x'.repeat(64))
    expect(read({ traceparent: 'x'.repeat(65) })).toBe('too long')
    expect(read({ traceParent: 'x' })).toBeUndefined()
    const others = Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`key${index}`, '']))
    expect(read({ ...others, traceparent: 'x' })).toBeUndefined()
  })

  it('ignores metadata that is no message', () => {
    for (const pair of ['2a01ff', '2a030aff00', '2a00']) {
      const bytes = Buffer.from(`0a0161120162${pair}`, 'hex')
      expect(decodeRequest(bytes)).toMatchObject({ service: 'a', method: 'b', known: undefined })
    }
  })

  it('skips unknown fields', () => {
    expect(decodeRequest(Buffer.from('0a016112016248078a0603616263', 'hex'))).toMatchObject({
      service: 'a',
      method: 'b',
    })
  })

  it.each(['0a', '0aff', 'ff', '0a8080808080808080808001', '1a05616263'])('throws on %s', (hex) => {
    expect(() => decodeRequest(Buffer.from(hex, 'hex'))).toThrow()
  })
})

describe('encodeRequestFrame', () => {
  it('decodes to the same request', () => {
    for (const timeoutNano of [0n, 1n, -1n, 2n ** 63n - 1n]) {
      const request = { service: 's', method: 'm', payload: Buffer.from('p'), timeoutNano }
      const frame = encodeRequestFrame(7, request)
      expect(frame.subarray(4, 10).toString('hex')).toBe('000000070100')
      expect(decodeRequest(payloadOf(frame))).toEqual(request)
    }
  })

  it('encodes metadata as pairs of key and value', () => {
    const request = { service: 's', method: 'm', payload: new Uint8Array(0), timeoutNano: 0n }
    const frame = encodeRequestFrame(1, request, { a: 'bc', d: '' })
    expect(payloadOf(frame).toString('hex')).toBe('0a017312016d' + '2a070a016112026263' + '2a050a01641200')
    expect(decodeRequest(payloadOf(frame))).toEqual(request)
  })
})

describe('encodeResponseFrame', () => {
  it('encodes a status of code 0 and the payload', () => {
    expect(encodeResponseFrame(1, Buffer.from('0a0568656c6c6f', 'hex')).toString('hex')).toBe(
      '0000000b0000000102000a0012070a0568656c6c6f',
    )
    expect(encodeResponseFrame(3, new Uint8Array(0)).toString('hex')).toBe('000000020000000302000a00')
  })

  it.each([1, 127, 128, 16383, 16384, 2097151, 2097152])(
    'decodes to the same %i bytes of payload',
    (size) => {
      const payload = Buffer.alloc(size, 'x')
      const bytes = payloadOf(encodeResponseFrame(1, payload))
      expect(bytes).toHaveLength(responseBytes(size))
      const response = decodeResponse(bytes)
      expect(response).toMatchObject({ code: 0, message: '' })
      expect(payload.equals(response.payload)).toBe(true)
    },
  )
})

describe('encodeResponseFrame of a payload with separate bulk bytes', () => {
  it.each([1, 127, 128, 16383, 65536])('encodes the same frame without its last %i bytes', (size) => {
    const payload = Buffer.alloc(size + 3, 'x')
    const [head, bulk] = [payload.subarray(0, 3), payload.subarray(3)]
    const whole = encodeResponseFrame(1, payload)
    expect(Buffer.concat([encodeResponseFrame(1, head, bulk.length), bulk]).equals(whole)).toBe(true)
  })
})

describe('encodeErrorFrame', () => {
  it('encodes code and text', () => {
    const frame = encodeErrorFrame(5, { code: 12, message: 'test.Nothing service does not exist' })
    expect(frame.toString('hex')).toBe(
      '000000290000000502000a27080c1223746573742e4e6f7468696e67207365727669636520646f6573206e6f74206578697374',
    )
  })
})

describe('decodeResponse', () => {
  it('treats a response without a status as a success', () => {
    expect(decodeResponse(Buffer.from('120161', 'hex'))).toEqual({
      code: 0,
      message: '',
      payload: Buffer.from('a'),
    })
  })
})

describe('timeoutMsOf', () => {
  it.each([
    [0n, undefined],
    [1n, 1],
    [1_000_000n, 1],
    [1_000_001n, 2],
    [-1n, 0],
    [-(2n ** 63n), 0],
    [2_147_483_647_000_000n, 2_147_483_647],
    [2_147_483_647_000_001n, undefined],
    [2n ** 63n - 1n, undefined],
  ])('of %i ns', (nano, ms) => {
    expect(timeoutMsOf(nano)).toBe(ms)
  })
})

describe('timeoutNanoOf', () => {
  it.each([
    [undefined, 0n],
    [Number.POSITIVE_INFINITY, 0n],
    [1, 1_000_000n],
    [0.5, 500_000n],
    [0, -1n],
    [-5, -1n],
  ])('of %s ms', (ms, nano) => {
    expect(timeoutNanoOf(ms)).toBe(nano)
  })
})
