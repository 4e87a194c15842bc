import { describe, expect, it } from 'vitest'
import { checkLinks } from '../../src/base/vm-metadata/point-to-point.ts'

const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }
const V6 = { ip: 'fd00::2', peerIp: 'fd00::1' }

describe('checkLinks', () => {
  it('accepts both families, and drops the full prefix length', () => {
    const v4 = { ip: '10.0.0.2/32', peerIp: '10.0.0.1' }
    const v6 = { ip: 'fd00::2/128', peerIp: 'fe80::1/128' }
    expect(checkLinks({ v4, v6 })).toEqual({
      links: [
        { family: 'ipv4', ip: '10.0.0.2', peerIp: '10.0.0.1' },
        { family: 'ipv6', ip: 'fd00::2', peerIp: 'fe80::1' },
      ],
      problems: [],
    })
  })

  it('returns no links and no problems without a configuration', () => {
    expect(checkLinks(undefined)).toEqual({ links: [], problems: [] })
    expect(checkLinks({ v4: undefined, v6: undefined })).toEqual({ links: [], problems: [] })
  })

  it('keeps the valid family when the other is invalid', () => {
    expect(checkLinks({ v4: { ...V4, ip: 'nonsense' }, v6: V6 })).toEqual({
      links: [{ family: 'ipv6', ...V6 }],
      problems: ['network_config.v4.ip nonsense is not an IPv4 address'],
    })
    expect(checkLinks({ v4: V4, v6: { ...V6, peerIp: '' } })).toEqual({
      links: [{ family: 'ipv4', ...V4 }],
      problems: ['network_config.v6.peer_ip is missing'],
    })
  })

  it.each([
    [{ ...V4, ip: '' }, 'ip is missing'],
    [{ ...V4, peerIp: '' }, 'peer_ip is missing'],
    [{ ...V4, peerIp: 'fd00::1' }, 'peer_ip fd00::1 is not an IPv4 address'],
    [{ ...V4, ip: '10.0.0.2/24' }, 'ip 10.0.0.2/24: a point-to-point link needs /32'],
    [{ ...V4, ip: '10.0.0.2/' }, 'ip 10.0.0.2/: a point-to-point link needs /32'],
    [{ ...V4, ip: '10.0.0.2/128' }, 'ip 10.0.0.2/128: a point-to-point link needs /32'],
    [{ ...V4, ip: '10.0.0.2/24/32/x' }, 'ip 10.0.0.2/24/32/x: a point-to-point link needs /32'],
    [{ ...V4, ip: '239.1.2.3' }, 'ip 239.1.2.3 is a multicast address'],
    [{ ...V4, peerIp: '0.0.0.0' }, 'peer_ip 0.0.0.0 is the unspecified address'],
    [{ ...V4, ip: '127.0.0.1' }, 'ip 127.0.0.1 is a loopback address'],
    [{ ...V4, ip: '255.255.255.255' }, 'ip 255.255.255.255 is a reserved address'],
    [{ ...V4, peerIp: '10.0.0.2/32' }, 'ip and peer_ip are the same'],
  ])('refuses %j for IPv4', (v4, problem) => {
    const { links, problems } = checkLinks({ v4, v6: undefined })
    expect(links).toEqual([])
    expect(problems).toEqual([expect.stringContaining(problem)])
  })

  it.each([
    [{ ...V6, ip: '10.0.0.2' }, 'ip 10.0.0.2 is not an IPv6 address'],
    [{ ...V6, ip: 'fe80::1%eth0' }, 'ip fe80::1%eth0 is not an IPv6 address'],
    [{ ...V6, ip: 'fd00::2/64' }, 'ip fd00::2/64: a point-to-point link needs /128'],
    [{ ...V6, peerIp: 'ff02::1' }, 'peer_ip ff02::1 is a multicast address'],
    [{ ...V6, ip: '::' }, 'ip :: is the unspecified address'],
    [{ ...V6, ip: '::1' }, 'ip ::1 is a loopback address'],
    [{ ...V6, peerIp: 'FD00:0::2/128' }, 'ip and peer_ip are the same'],
  ])('refuses %j for IPv6', (v6, problem) => {
    const { links, problems } = checkLinks({ v4: undefined, v6 })
    expect(links).toEqual([])
    expect(problems).toEqual([expect.stringContaining(problem)])
  })
})
