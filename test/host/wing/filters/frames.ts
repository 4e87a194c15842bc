import { parseIp } from '../../../../src/base/ip-address.ts'

export const OWN = {
  mac: '52:54:00:00:00:02',
  ipv4: '10.0.0.2',
  ipv6: 'fd00::2',
  link: 'fe80::5054:ff:fe00:2',
} as const
const OTHER = { mac: '52:54:00:00:00:66', ipv4: '10.0.0.66', ipv6: 'fd00::66', link: 'fe80::1' } as const
const NONE = { ipv4: '0.0.0.0', ipv6: '::', all: '255.255.255.255' } as const

type Filter = 'mac' | 'ip' | 'arp'

/** Frames of a guest, and the filters of which each alone keeps the frame back. */
export function framesOf(): readonly (readonly [name: string, frame: Buffer, stops: readonly Filter[]])[] {
  const lie = udp4(OTHER.ipv4)
  return [
    ['IPv4', ether(0x0800, udp4(OWN.ipv4)), []],
    ['IPv4 of another', ether(0x0800, lie), ['ip']],
    ['IPv4 from another card', ether(0x0800, udp4(OWN.ipv4), OTHER.mac), ['mac']],
    ['IPv4 in a VLAN', ether(0x8100, tagged(7, 0x0800, udp4(OWN.ipv4))), ['ip', 'arp']],
    ['IPv4 of another in the VLAN of none', ether(0x8100, tagged(0, 0x0800, lie)), ['ip', 'arp']],
    ['IPv4 of another in two VLANs', ether(0x88a8, tagged(7, 0x8100, tagged(0, 0x0800, lie))), ['ip', 'arp']],
    ['DHCP', ether(0x0800, udp4(NONE.ipv4, NONE.all, 68, 67)), []],
    ['DHCP of no address to one host', ether(0x0800, udp4(NONE.ipv4, '10.0.0.1', 68, 67)), ['ip']],
    ['DNS of no address', ether(0x0800, udp4(NONE.ipv4, NONE.all, 68, 53)), ['ip']],
    ['an answer of a DHCP server', ether(0x0800, udp4('10.0.0.1', NONE.all, 67, 68)), ['ip']],
    ['an ARP request', ether(0x0806, arp({ operation: 1 })), []],
    ['an ARP answer', ether(0x0806, arp({})), []],
    ['an ARP answer for another', ether(0x0806, arp({ sender: OTHER.ipv4 })), ['arp']],
    ['an ARP answer with another card', ether(0x0806, arp({ mac: OTHER.mac })), ['arp']],
    ['an ARP answer from another card', ether(0x0806, arp({}), OTHER.mac), ['mac']],
    ['an ARP probe', ether(0x0806, arp({ operation: 1, sender: NONE.ipv4, target: OWN.ipv4 })), []],
    ['an ARP probe of another', ether(0x0806, arp({ operation: 1, sender: NONE.ipv4 })), ['arp']],
    ['an ARP answer for none', ether(0x0806, arp({ sender: NONE.ipv4, target: OWN.ipv4 })), ['arp']],
    ['ARP of IEEE 802', ether(0x0806, arp({ hardware: 6, sender: OTHER.ipv4 })), ['arp']],
    ['ARP with long addresses', ether(0x0806, arp({ length: 8 })), ['arp']],
    ['inverse ARP', ether(0x0806, arp({ operation: 8 })), ['arp']],
    [
      'an ARP answer for another in the VLAN of none',
      ether(0x8100, tagged(0, 0x0806, arp({ sender: OTHER.ipv4 }))),
      ['ip', 'arp'],
    ],
    ['RARP', ether(0x8035, arp({ operation: 3 })), ['ip', 'arp']],
    ['LLDP', ether(0x88cc, Buffer.alloc(46)), ['ip', 'arp']],
    ['IPv6', ether(0x86dd, udp6(OWN.ipv6)), []],
    ['IPv6 from the link-local address', ether(0x86dd, udp6(OWN.link)), []],
    ['IPv6 of another', ether(0x86dd, udp6(OTHER.ipv6)), ['ip']],
    ['IPv6 of another link-local address', ether(0x86dd, udp6(OTHER.link)), ['ip']],
    ['a neighbour that tells its address', ether(0x86dd, neighbour(136, OWN.ipv6, OWN.ipv6)), []],
    ['a neighbour that tells its link-local address', ether(0x86dd, neighbour(136, OWN.link, OWN.link)), []],
    ['a neighbour that tells another address', ether(0x86dd, neighbour(136, OWN.ipv6, OTHER.ipv6)), ['arp']],
    ['a neighbour that tells a router', ether(0x86dd, neighbour(136, OWN.link, OTHER.link)), ['arp']],
    ['a neighbour that tells as another', ether(0x86dd, neighbour(136, OTHER.ipv6, OWN.ipv6)), ['ip', 'arp']],
    [
      'a neighbour that tells another address behind options',
      ether(0x86dd, neighbour(136, OWN.ipv6, OTHER.ipv6, true)),
      ['arp'],
    ],
    ['a neighbour that asks', ether(0x86dd, neighbour(135, OWN.ipv6, OTHER.ipv6)), []],
    ['a neighbour that asks as another', ether(0x86dd, neighbour(135, OTHER.ipv6, OWN.ipv6)), ['ip', 'arp']],
    ['a question for its own address', ether(0x86dd, neighbour(135, NONE.ipv6, OWN.ipv6)), []],
    ["a question for another's address", ether(0x86dd, neighbour(135, NONE.ipv6, OTHER.ipv6)), ['arp']],
    ['a question for routers', ether(0x86dd, neighbour(133, NONE.ipv6, NONE.ipv6)), []],
    ['a report of groups', ether(0x86dd, neighbour(143, NONE.ipv6, NONE.ipv6)), []],
    ['an echo request of none', ether(0x86dd, neighbour(128, NONE.ipv6, NONE.ipv6)), ['ip']],
    ['a router', ether(0x86dd, neighbour(134, OWN.link, NONE.ipv6)), ['arp']],
    ['a redirect', ether(0x86dd, neighbour(137, OWN.link, OTHER.ipv6)), ['arp']],
  ]
}

/** Frames of a guest whose agent alone may answer, and whether each is let through; the first one is. */
export function agentFramesOf(): readonly (readonly [name: string, frame: Buffer, passes: boolean])[] {
  return [
    ['an answer of the agent', ether(0x86dd, tcp6(1024, FLAGS.ack)), true],
    ['its consent to a connection', ether(0x86dd, tcp6(1024, FLAGS.syn | FLAGS.ack)), true],
    ["the agent's end of one", ether(0x86dd, tcp6(1024, FLAGS.reset)), true],
    ["a connection of the guest's own", ether(0x86dd, tcp6(1000, FLAGS.syn)), false],
    ["a connection from the agent's port", ether(0x86dd, tcp6(1024, FLAGS.syn)), false],
    ['TCP from another port', ether(0x86dd, tcp6(1000, FLAGS.ack)), false],
    ['UDP', ether(0x86dd, udp6(OTHER.link)), false],
    ['IPv4', ether(0x0800, udp4(OWN.ipv4)), false],
    ['ARP', ether(0x0806, arp({})), false],
    ['a neighbour that asks', ether(0x86dd, neighbour(135, OWN.link, OTHER.link)), true],
    ['a neighbour that tells its address', ether(0x86dd, neighbour(136, OWN.link, OWN.link)), true],
    ['a router', ether(0x86dd, neighbour(134, OWN.link, NONE.ipv6)), false],
    ['an echo request', ether(0x86dd, neighbour(128, OWN.link, NONE.ipv6)), false],
  ]
}

/** An answer from the agent's port and another's address. */
export function agentOfAnother(): readonly [name: string, frame: Buffer] {
  return ['an answer of another', ether(0x86dd, tcp6(1024, FLAGS.ack, OTHER.link))]
}

/** Of TCP (RFC 9293). */
const FLAGS = { syn: 0x02, reset: 0x04, ack: 0x10 } as const

function tcp6(port: number, flags: number, from: string = OWN.link): Buffer {
  const header = Buffer.alloc(20)
  header.writeUInt16BE(port, 0)
  header.writeUInt16BE(2000, 2)
  header.writeUInt8(5 << 4, 12)
  header.writeUInt8(flags, 13)
  return ipv6(from, 6, header)
}

/** To all. */
function ether(type: number, payload: Buffer, from: string = OWN.mac): Buffer {
  return Buffer.concat([Buffer.alloc(6, 0xff), macBytes(from), word(type), payload])
}

function tagged(vlan: number, type: number, payload: Buffer): Buffer {
  return Buffer.concat([word(vlan), word(type), payload])
}

function udp4(from: string, to = '10.0.0.1', sourcePort = 1000, port = 1000): Buffer {
  const header = Buffer.from('45000020000000004011000000000000', 'hex').subarray(0, 12)
  const packet = Buffer.concat([header, ip(from), ip(to)])
  packet.writeUInt16BE(checksum(packet), 10)
  return Buffer.concat([packet, word(sourcePort), word(port), word(12), word(0), Buffer.alloc(4)])
}

function udp6(from: string): Buffer {
  const udp = Buffer.concat([word(1000), word(1000), word(12), word(0), Buffer.alloc(4)])
  return ipv6(from, 17, udp)
}

function ipv6(from: string, next: number, payload: Buffer): Buffer {
  const header = Buffer.concat([
    Buffer.from('60000000', 'hex'),
    word(payload.length),
    Buffer.from([next, 255]),
  ])
  return Buffer.concat([header, ip(from), ip('ff02::1'), payload])
}

/** A message of ICMPv6 whose bytes 8 to 24 are an address. */
function neighbour(type: number, from: string, target: string, hasOptions = false): Buffer {
  const message = Buffer.concat([Buffer.from([type, 0, 0, 0, 0, 0, 0, 0]), ip(target)])
  const options = Buffer.from([58, 0, 1, 4, 0, 0, 0, 0])
  return hasOptions ? ipv6(from, 60, Buffer.concat([options, message])) : ipv6(from, 58, message)
}

interface Arp {
  readonly operation?: number
  readonly mac?: string
  readonly sender?: string
  readonly target?: string
  readonly hardware?: number
  readonly length?: number
}

function arp({
  operation = 2,
  mac = OWN.mac,
  sender = OWN.ipv4,
  target = '10.0.0.1',
  hardware = 1,
  length = 6,
}: Arp): Buffer {
  const head = Buffer.concat([word(hardware), word(0x0800), Buffer.from([length, 4]), word(operation)])
  return Buffer.concat([head, macBytes(mac), ip(sender), Buffer.alloc(6), ip(target)])
}

function ip(text: string): Buffer {
  return Buffer.from(parseIp(text) ?? expectAddress(text))
}

function expectAddress(text: string): never {
  throw new Error(`${text}: not an address`)
}

function macBytes(text: string): Buffer {
  return Buffer.from(text.replaceAll(':', ''), 'hex')
}

function word(value: number): Buffer {
  const bytes = Buffer.alloc(2)
  bytes.writeUInt16BE(value)
  return bytes
}

function checksum(header: Buffer): number {
  let sum = 0
  for (let at = 0; at < header.length; at += 2) sum += header.readUInt16BE(at)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16)
  return ~sum & 0xffff
}
