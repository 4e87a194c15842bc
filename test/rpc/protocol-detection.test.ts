import { describe, expect, it } from 'vitest'
import { detectProtocol } from '../../src/rpc/protocol-detection.ts'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const FRAME = Buffer.from('000000110000000301000a', 'hex')

describe('detectProtocol', () => {
  it('detects gRPC by the whole HTTP/2 preface', () => {
    expect(detectProtocol(PREFACE)).toBe('grpc')
    expect(detectProtocol(Buffer.concat([PREFACE, FRAME]))).toBe('grpc')
    for (let length = 0; length < PREFACE.length; length += 1) {
      expect(detectProtocol(PREFACE.subarray(0, length))).toBe('need-more')
    }
  })

  it('detects ttRPC by a frame header', () => {
    expect(detectProtocol(FRAME)).toBe('ttrpc')
    for (let length = 0; length < 10; length += 1)
      expect(detectProtocol(FRAME.subarray(0, length))).toBe('need-more')
  })

  it('detects ttRPC by a frame that is too large or of the wrong type, which ttRPC then answers', () => {
    expect(detectProtocol(Buffer.from('00ffffff000000010100', 'hex'))).toBe('ttrpc')
    expect(detectProtocol(Buffer.from('00000000000000010200', 'hex'))).toBe('ttrpc')
    expect(detectProtocol(Buffer.from('00000000000000010300', 'hex'))).toBe('ttrpc')
  })

  it.each([
    ['an HTTP/1 request', Buffer.from('GET / HTTP/1.1\r\n')],
    ['a malformed preface', Buffer.from('PRI * HTTP/1')],
    ['a TLS hello', Buffer.from('16030100f8010000f4', 'hex')],
    ['a frame of 16 MiB', Buffer.from('01000000', 'hex')],
    ['a frame of an unknown type', Buffer.from('00000000000000010900', 'hex')],
    ['text', Buffer.from('hello')],
  ])('refuses %s', (_, bytes) => {
    expect(detectProtocol(bytes)).toBe('invalid')
  })
})
