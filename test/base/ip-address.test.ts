import { isIPv4, isIPv6, SocketAddress } from 'node:net'
import { describe, expect, it } from 'vitest'
import {
  broadcastOf,
  formatIp,
  maskHostBits,
  parseIp,
  prefixLengthOfMask,
} from '../../src/base/ip-address.ts'

const IPV6 = [
  ...[
    '::',
    '::1',
    '1::',
    'fe80::1',
    'fd00::1:0:0:1',
    '2001:db8:0:0:1:0:0:1',
    '2001:DB8::A',
    '1:2:3:4:5:6:7:8',
  ],
  ...['::ffff:10.0.0.1', '64:ff9b::192.0.2.33', '1:2:3:4:5:6:7::', '::2:3:4:5:6:7:8', '1:0:0:2::3'],
]
const NO_ADDRESS = [
  ...['', 'ten', '1.2.3', '1.2.3.4.5', '256.0.0.1', '01.2.3.4', '1.2.3.4/24', ' 1.2.3.4', '1.2.3.-4'],
  ...[':', ':::', '1:2', '1::2::3', '12345::', 'fe80::1%eth0', '1:2:3:4:5:6:7:8:9', '1:2:3:4:5:6:7:8::'],
  ...['::1.2.3', '1.2.3.4::', '::1.2.3.4:5', 'g::', '1:2:3:4::5:6:7:8', ':1:2:3:4:5:6:7', '[::1]'],
]

describe('parseIp and formatIp', () => {
  it.each(IPV6)('print %s in the usual form', (text) => {
    const bytes = parseIp(text)
    expect(bytes).toHaveLength(16)
    expect(formatIp(bytes ?? Buffer.of())).toBe(new SocketAddress({ address: text, family: 'ipv6' }).address)
  })

  it.each(['0.0.0.0', '10.0.0.1', '255.255.255.255'])('keep %s', (text) => {
    expect(formatIp(parseIp(text) ?? Buffer.of())).toBe(text)
  })

  it.each([...NO_ADDRESS, ...IPV6])('accept %j where Node does', (text) => {
    const zone = text.includes('%')
    expect(parseIp(text) !== undefined).toBe(!zone && (isIPv4(text) || isIPv6(text)))
  })
})

describe('maskHostBits', () => {
  it.each([
    ['192.168.157.204', 20, '192.168.144.0'],
    ['192.168.157.204', 32, '192.168.157.204'],
    ['192.168.157.204', 0, '0.0.0.0'],
    ['fd00:1:2:3:4:5:6:7', 64, 'fd00:1:2:3::'],
    ['fd00:1:2:ffff::', 61, 'fd00:1:2:fff8::'],
    ['fd00::1', 128, 'fd00::1'],
  ])('%s/%i is in %s', (address, prefixLength, network) => {
    expect(formatIp(maskHostBits(parseIp(address) ?? Buffer.of(), prefixLength))).toBe(network)
  })
})

describe('the parts of an IPv4 network', () => {
  it.each([
    ['10.0.0.5', 24, '10.0.0.255'],
    ['10.0.0.5', 30, '10.0.0.7'],
    ['172.16.5.4', 12, '172.31.255.255'],
  ])('the last address of %s/%i is %s', (address, prefixLength, broadcast) => {
    expect(broadcastOf(parseIp(address) ?? Buffer.of(), prefixLength)).toBe(broadcast)
  })

  it.each([
    ['255.255.255.0', 24],
    ['255.255.255.255', 32],
    ['0.0.0.0', 0],
    ['255.0.255.0', undefined],
    ['off', undefined],
    ['ffff::', undefined],
  ])('the mask %s has %s bits', (mask, prefixLength) => {
    expect(prefixLengthOfMask(mask)).toBe(prefixLength)
  })
})
