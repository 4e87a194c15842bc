import { isIP } from 'node:net'
import { describe, expect, it } from 'vitest'
import { parseIp } from '../../src/base/ip-address.ts'

const hex = (text: string) => {
  const bytes = parseIp(text)
  return bytes && Buffer.from(bytes).toString('hex')
}

describe('parseIp', () => {
  it.each([
    ['10.0.0.2', '0a000002'],
    ['255.255.255.255', 'ffffffff'],
    ['::', '0'.repeat(32)],
    ['::1', `${'0'.repeat(31)}1`],
    ['fd00::', `fd00${'0'.repeat(28)}`],
    ['FD00::a:B', `fd00${'0'.repeat(20)}000a000b`],
    ['1:2:3:4:5:6:7:8', '00010002000300040005000600070008'],
    ['1:2:3:4:5:6:7::', '00010002000300040005000600070000'],
    ['::ffff:10.0.0.2', `${'0'.repeat(20)}ffff0a000002`],
    ['1:2:3:4:5:6:1.2.3.4', '00010002000300040005000601020304'],
  ])('reads %s', (text, bytes) => {
    expect(hex(text)).toBe(bytes)
    expect(isIP(text)).not.toBe(0)
  })

  it.each([
    ...['', '1.2.3', '1.2.3.4.5', '01.2.3.4', '256.0.0.1', '1.2.3.-4', '1.2.3.4/32', ' 1.2.3.4'],
    ...[':', ':::', '1::2::3', '1:2:3:4:5:6:7', '1:2:3:4:5:6:7:8:9', '1:2:3:4:5:6:7:8::', '12345::', 'g::'],
    ...['1.2.3.4::', '::1.2.3.4:5', ':1::2', '1::2:', '::1%eth0', '::1/128'],
  ])('refuses %j', (text) => {
    expect(parseIp(text)).toBeUndefined()
  })
})
