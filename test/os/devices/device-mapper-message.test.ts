import { describe, expect, it } from 'vitest'
import {
  DM_COMMAND,
  DM_FLAG,
  deviceMapperMessage,
  deviceMapperRequest,
  minorOf,
} from '../../../src/os/devices/device-mapper-message.ts'

describe('deviceMapperRequest', () => {
  it('has the numbers of linux/dm-ioctl.h', () => {
    expect(Object.values(DM_COMMAND).map((command) => deviceMapperRequest(command).toString(16))).toEqual([
      'c138fd03',
      'c138fd04',
      'c138fd06',
      'c138fd09',
    ])
  })
})

describe('deviceMapperMessage', () => {
  it('is the structure that names a device', () => {
    const message = deviceMapperMessage('layers-1', { flags: DM_FLAG.deferredRemove })
    expect(message.length).toBe(312)
    // Version 4.0.0, 312 bytes, whose data would begin at their end.
    expect(message.toString('hex', 0, 20)).toBe('0400000000000000000000003801000038010000')
    expect(message.readUInt32LE(28)).toBe(0x2_0000)
    expect(message.toString('latin1', 48, 57)).toBe('layers-1\0')
  })

  it('has the target after it, padded to whole words', () => {
    const target = { type: 'verity', sectors: 0x1_0000_0002n, parameters: '1 /dev/a' }
    const message = deviceMapperMessage('x', { flags: DM_FLAG.readOnly, target })
    expect(message.length).toBe(312 + 40 + 16)
    expect([message.readUInt32LE(12), message.readUInt32LE(20)]).toEqual([message.length, 1])
    const spec = message.subarray(312)
    expect(spec.toString('hex', 0, 24)).toBe(`${'00'.repeat(8)}0200000001000000${'00'.repeat(4)}38000000`)
    expect(spec.toString('latin1', 24).replace(/\0+/g, '|')).toBe('verity|1 /dev/a|')
  })
})

describe('minorOf', () => {
  it('puts the parts of a minor number together', () => {
    const answer = deviceMapperMessage('x')
    // 253:3, and 253:259, as the kernel writes them.
    answer.writeUInt32LE(0x0000_fd03, 40)
    expect(minorOf(answer)).toBe(3)
    answer.writeUInt32LE(0x0010_fd03, 40)
    expect(minorOf(answer)).toBe(259)
  })
})
