import { describe, expect, it } from 'vitest'
import {
  decodeBrokerMessage,
  encodeClose,
  encodeConfirm,
  encodeHello,
  encodePong,
  encodeStop,
} from '../../../src/os/supervisor/broker-messages.ts'

/** The bytes of a message: kind, flags, a, b, payload. */
function bytesOf(kind: string, flags: string, a: string, b = '0000000000000000', payload = ''): Buffer {
  return Buffer.from(`${kind}000000${flags}000000${a}${b}${payload}`, 'hex')
}

const ONE = '0100000000000000'
const NONE = '0000000000000000'

describe('a message to the broker', () => {
  it('has the layout of native/broker/protocol.h', () => {
    const limits = { connections: 1024, headerMs: 10_000, framePayloadBytes: 4 << 20, totalBytes: 96 << 20 }
    expect(encodeHello({ ...limits, allowLoopback: true, tcpPeer: '10.0.0.1', hangMs: 10_000 })).toEqual(
      bytesOf(
        '01',
        '01',
        '0300000000000000',
        '1027000000000000',
        '00040000' + '10270000' + '00004000' + '0000000600000000' + '00000000000000000000ffff0a000001',
      ),
    )
    expect(encodeHello({ ...limits, allowLoopback: false, tcpPeer: 'fd00::1', hangMs: 0 })).toEqual(
      bytesOf(
        '01',
        '00',
        '0300000000000000',
        '0000000000000000',
        '00040000' + '10270000' + '00004000' + '0000000600000000' + 'fd000000000000000000000000000001',
      ),
    )
    expect(encodePong(1n)).toEqual(bytesOf('02', '00', ONE))
    expect(encodeStop()).toEqual(bytesOf('03', '00', NONE))
    expect(encodeClose(1n)).toEqual(bytesOf('04', '00', ONE))
    expect(encodeConfirm(1n)).toEqual(bytesOf('05', '00', ONE))
  })
})

describe('a message of the broker', () => {
  const vsock = '01000000' + '02000000' + '4d000000' + '00000000'

  it.each([
    [
      'a ttRPC connection over vsock',
      bytesOf('10', '00', ONE, NONE, `${vsock}00000000`),
      { kind: 'connection', id: 1n, framing: 'ttrpc', peer: { kind: 'vsock', cid: 2, port: 77 } },
    ],
    [
      'a gRPC connection over TCP with its first bytes',
      bytesOf(
        '10',
        '01',
        ONE,
        NONE,
        '02000000' + '00000000' + '50000000' + '03000000' + '3a3a31' + '02000000' + '5052',
      ),
      { framing: 'grpc', peer: { kind: 'tcp', address: '::1', port: 80 }, firstBytes: Buffer.from('PR') },
    ],
    [
      'states of requests',
      bytesOf('11', '01', ONE, NONE, `0200000000000000${NONE}03000000000000000200000000000000`),
      {
        kind: 'request state',
        states: new Map([
          [1n, 'written'],
          [2n, 'open'],
          [3n, 'dropped'],
        ]),
      },
    ],
    ['ready', bytesOf('12', '00', NONE), { kind: 'ready' }],
    ['a ping', bytesOf('13', '00', ONE), { kind: 'ping', number: 1n }],
  ])('is decoded: %s', (_, bytes, expected) => {
    expect(decodeBrokerMessage(bytes)).toMatchObject(expected)
  })

  it.each([
    ['less than a header', Buffer.alloc(23), 'message of 23 bytes'],
    ['an unknown kind', bytesOf('15', '00', ONE), 'message of kind 21, want 16 to 20'],
    ['an unknown state', bytesOf('11', '04', ONE), 'request in state 4, want 0 to 3'],
    ['half a state', bytesOf('11', '00', ONE, NONE, ONE), 'states of 8 bytes'],
    [
      'an unknown peer',
      bytesOf('10', '00', ONE, NONE, `03000000${vsock.slice(8)}00000000`),
      'connection 1: peer of kind 3',
    ],
    [
      'too many first bytes',
      bytesOf('10', '00', ONE, NONE, `${vsock}0000000000`),
      'connection 1: payload of 21 bytes, whose parts have another length',
    ],
    ['an address that is cut off', bytesOf('10', '00', ONE, NONE, `${vsock.slice(0, -8)}ff000000`), /./],
  ])('is refused: %s', (_, bytes, message) => {
    expect(() => decodeBrokerMessage(bytes)).toThrow(message)
  })
})
