import { describe, expect, it } from 'vitest'
import {
  decodeAttributes,
  decodeMessages,
  text,
  writeMessage,
} from '../../../src/os/network/netlink/message.ts'

/** `ip link set eth0 name net0 mtu 1400`, as strace shows it, with sequence 5. */
const RECORDED =
  '34000000 1300 0500 05000000 00000000' +
  '00000000 02000000 00000000 00000000' +
  '0800 0400 78050000' +
  '0900 0300 6e65743000 000000'

describe('writeMessage', () => {
  it('writes header, fixed part and padded attributes', () => {
    const fixed = Buffer.alloc(16)
    fixed.writeInt32LE(2, 4)
    const attributes = [
      { type: 4, value: 1400 },
      { type: 3, value: text('net0') },
    ]
    const encoded = written({ type: 19, flags: 5, sequence: 5, fixed, attributes })
    expect(encoded.toString('hex')).toBe(RECORDED.replaceAll(' ', ''))
  })

  it('marks nested attributes and includes their length', () => {
    const nest = { type: 8, value: [{ type: 2, value: 1300 }] }
    const encoded = written({
      type: 24,
      flags: 1,
      sequence: 1,
      fixed: Buffer.alloc(12),
      attributes: [nest],
    })
    expect(encoded.subarray(28).toString('hex')).toBe('0c0008800800020014050000')
  })
})

/** Writes the message over the bytes of an earlier one. */
function written(message: Parameters<typeof writeMessage>[1]): Buffer {
  const target = Buffer.alloc(128, 0xff)
  return target.subarray(0, writeMessage(target, message))
}

describe('decodeMessages', () => {
  it('splits a datagram into messages', () => {
    const one = Buffer.from(RECORDED.replaceAll(' ', ''), 'hex')
    const messages = decodeMessages(Buffer.concat([one, one]))
    expect(messages).toHaveLength(2)
    expect(messages[1]).toMatchObject({ type: 19, flags: 5, sequence: 5 })
    const attributes = decodeAttributes(messages[1]?.payload.subarray(16) ?? Buffer.of())
    expect(attributes.get(4)?.readUInt32LE()).toBe(1400)
    expect(attributes.get(3)?.toString()).toBe('net0\0')
  })

  it.each([
    ['longer than the datagram', '40000000', 16],
    ['shorter than its header', '04000000', 16],
    ['cut in its header', '1000', 2],
  ])('refuses a message %s', (_what, head, length) => {
    const datagram = Buffer.alloc(length)
    datagram.write(head, 'hex')
    expect(() => decodeMessages(datagram)).toThrow(RangeError)
  })
})

describe('decodeAttributes', () => {
  it('reads nested attributes without their flag', () => {
    expect([...decodeAttributes(Buffer.from('0800088001000000', 'hex')).keys()]).toEqual([8])
  })

  it('stops at an attribute that is cut off', () => {
    expect(decodeAttributes(Buffer.from('08000100010000000900020001', 'hex')).size).toBe(1)
    expect(decodeAttributes(Buffer.from('0000010001000000', 'hex')).size).toBe(0)
  })
})
