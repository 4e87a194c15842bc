import { createHash } from 'node:crypto'
import { familyOf, formatIp, parseIp } from '../../../base/ip-address.ts'
import { AGENT_PORT } from '../../qemu/vsock/guest-link.ts'
import type { NetworkFilter, NicDevice } from '../../spec/spec.ts'

/** A value of libnftables-json(5). */
type Json = string | number | null | readonly Json[] | { readonly [name: string]: Json }

/** Commands of nft(8), which it carries out all or not at all. */
export interface Ruleset {
  readonly nftables: readonly Json[]
}

/** The table of a tap's rules: of no other instance, daemon or tap. */
export function tableOf(folder: string, backend: string): string {
  return `microvm-${createHash('sha256').update(`${folder}\n${backend}`).digest('hex').slice(0, 32)}`
}

/** Removes a table, also one that is not there. */
export function withoutTable(table: string): Ruleset {
  const name = { family: FAMILY, name: table }
  return { nftables: [{ add: { table: name } }, { delete: { table: name } }] }
}

export interface FilteredTap {
  readonly table: string
  readonly interfaceName: string
  /** Checked. */
  readonly card: Pick<NicDevice, 'mac' | 'filters' | 'addresses'>
}

/**
 * Puts rules in the table, in place of those that it has. They see each frame of the guest before a bridge or the host does,
 * so they stay when the tap changes its bridge.
 */
export function rulesOf({ table, interfaceName, card }: FilteredTap): Ruleset {
  const chain = { family: FAMILY, table, name: CHAIN }
  const hook = { type: 'filter', hook: 'ingress', dev: interfaceName, prio: 0, policy: 'accept' }
  const agent = { family: FAMILY, table, name: AGENT_CHAIN }
  const isAgentOnly = card.filters?.includes('agent-only') ?? false
  const ruleIn = (chain: string) => (expr: Rule) => ({
    add: { rule: { family: FAMILY, table, chain, expr } },
  })
  return {
    nftables: [
      ...withoutTable(table).nftables,
      { add: { table: { family: FAMILY, name: table } } },
      { add: { chain: { ...chain, ...hook } } },
      ...(isAgentOnly ? [{ add: { chain: agent } }, ...agentRules().map(ruleIn(AGENT_CHAIN))] : []),
      ...frameRules(card).map(ruleIn(CHAIN)),
    ],
  }
}

const FAMILY = 'netdev'
const CHAIN = 'from-guest'
/** Returns to the first one with what the guest's agent may send. */
const AGENT_CHAIN = 'from-agent'

/** What a rule matches, and what becomes of it. */
type Rule = readonly Json[]

const DROP: Json = { drop: null }
const ACCEPT: Json = { accept: null }
const RETURN: Json = { return: null }

function frameRules({ mac, filters = [], addresses = [] }: FilteredTap['card']): readonly Rule[] {
  const has = (name: NetworkFilter) => filters.includes(name)
  const own = ownAddresses(mac, addresses)
  return [
    ...(has('agent-only') ? [[{ jump: { target: AGENT_CHAIN } }]] : []),
    ...(has('no-mac-spoofing') ? [[isNot('ether', 'saddr', mac), DROP]] : []),
    // Other protocols, and frames of a VLAN, can carry packets that the rules below do not look into.
    ...(has('no-ip-spoofing') || has('no-arp-spoofing')
      ? [[isNot('ether', 'type', anyOf(['ip', 'arp', 'ip6'])), DROP]]
      : []),
    ...(has('no-arp-spoofing') ? [...arpRules(mac, own), ...neighbourRules(own)] : []),
    ...(has('no-ip-spoofing') ? packetRules(own) : []),
  ]
}

/** Lets the guest find the other end of its link, and answer connections to its agent; it begins none. */
function agentRules(): readonly Rule[] {
  const isIpv6 = is('ether', 'type', 'ip6')
  const flags = { '&': [{ payload: { protocol: 'tcp', field: 'flags' } }, SYN_OR_ACK] }
  const isNoCall = { match: { op: '!=', left: flags, right: SYN } }
  return [
    [isIpv6, is('icmpv6', 'type', anyOf([ICMPV6.ask, ICMPV6.tell])), RETURN],
    [isIpv6, is('tcp', 'sport', AGENT_PORT), isNoCall, RETURN],
    [DROP],
  ]
}

/** Bits of TCP's flags (RFC 9293). */
const SYN = 0x02
const SYN_OR_ACK = 0x12

interface OwnAddresses {
  readonly ipv4: readonly string[]
  /** With the link-local one that follows from the MAC. */
  readonly ipv6: readonly string[]
}

function ownAddresses(mac: string, addresses: readonly string[]): OwnAddresses {
  const parsed = addresses.flatMap((text) => parseIp(text) ?? [])
  const textsOf = (family: 'ipv4' | 'ipv6') =>
    parsed.filter((bytes) => familyOf(bytes) === family).map(formatIp)
  return { ipv4: unique(textsOf('ipv4')), ipv6: unique([linkLocalOf(mac), ...textsOf('ipv6')]) }
}

/** The address of RFC 4291, appendix A. */
function linkLocalOf(mac: string): string {
  const [first = 0, ...rest] = mac.split(':').map((byte) => Number.parseInt(byte, 16))
  const interfaceId = [first ^ 2, ...rest.slice(0, 2), 0xff, 0xfe, ...rest.slice(2)]
  return formatIp(Uint8Array.from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, ...interfaceId]))
}

/** Lets the guest tell its own addresses, and ask for one of them whether another has it (RFC 5227). */
function arpRules(mac: string, { ipv4 }: OwnAddresses): readonly Rule[] {
  const isOfEthernet = [
    is('arp', 'htype', 1),
    is('arp', 'ptype', 'ip'),
    is('arp', 'hlen', 6),
    is('arp', 'plen', 4),
    is('arp', 'saddr ether', mac),
  ]
  const own = anyOf(ipv4)
  const allowed =
    ipv4.length === 0
      ? []
      : [
          [is('arp', 'operation', anyOf([1, 2])), is('arp', 'saddr ip', own)],
          [is('arp', 'operation', 1), is('arp', 'saddr ip', '0.0.0.0'), is('arp', 'daddr ip', own)],
        ]
  return [
    ...allowed.map((matches) => [is('ether', 'type', 'arp'), ...isOfEthernet, ...matches, ACCEPT]),
    [is('ether', 'type', 'arp'), DROP],
  ]
}

/** Types of ICMPv6 (RFC 4861, RFC 2710, RFC 3810). */
const ICMPV6 = {
  routers: 133,
  router: 134,
  ask: 135,
  tell: 136,
  redirect: 137,
  listens: [131, 132, 143],
} as const

/** ARP's successor of IPv6: no guest is a router here, and it tells of itself alone. */
function neighbourRules({ ipv6 }: OwnAddresses): readonly Rule[] {
  const own = anyOf(ipv6)
  const [from, target] = [
    is('ip6', 'saddr', own),
    { match: { op: '==', left: TARGET, right: anyOf(ipv6.map(hexOf)) } },
  ]
  const fromNone = is('ip6', 'saddr', '::')
  const type = (...types: readonly number[]) => is('icmpv6', 'type', anyOf(types))
  const isIpv6 = is('ether', 'type', 'ip6')
  const { routers, router, ask, tell, redirect } = ICMPV6
  const allowed = [
    [type(routers, ask), from],
    [type(tell), from, target],
    [type(ask), fromNone, target],
    [type(routers), fromNone],
  ]
  const dropped: Rule = [isIpv6, type(routers, router, ask, tell, redirect), DROP]
  return [...allowed.map((matches) => [isIpv6, ...matches, ACCEPT]), dropped]
}

/** The target of a neighbour's question or answer, which nft 1.0.6 has no name for. */
const TARGET: Json = { payload: { base: 'th', offset: 64, len: 128 } }

/** Lets the guest send from its own addresses, and what it sends before it has one: DHCP, and questions of IPv6. */
function packetRules({ ipv4, ipv6 }: OwnAddresses): readonly Rule[] {
  const dhcp = [
    is('ip', 'saddr', '0.0.0.0'),
    is('ip', 'daddr', '255.255.255.255'),
    is('udp', 'sport', 68),
    is('udp', 'dport', 67),
  ]
  const early = anyOf([...ICMPV6.listens, ICMPV6.routers, ICMPV6.ask])
  const isIpv4 = is('ether', 'type', 'ip')
  const isIpv6 = is('ether', 'type', 'ip6')
  return [
    ...(ipv4.length === 0 ? [] : [[isIpv4, is('ip', 'saddr', anyOf(ipv4)), ACCEPT]]),
    [isIpv4, ...dhcp, ACCEPT],
    [isIpv4, DROP],
    [isIpv6, is('ip6', 'saddr', anyOf(ipv6)), ACCEPT],
    [isIpv6, is('ip6', 'saddr', '::'), is('icmpv6', 'type', early), ACCEPT],
    [isIpv6, DROP],
  ]
}

function is(protocol: string, field: string, right: Json): Json {
  return { match: { op: '==', left: { payload: { protocol, field } }, right } }
}

function isNot(protocol: string, field: string, right: Json): Json {
  return { match: { op: '!=', left: { payload: { protocol, field } }, right } }
}

function anyOf(values: readonly Json[]): Json {
  return { set: values }
}

function hexOf(address: string): string {
  return `0x${Buffer.from(parseIp(address) ?? []).toString('hex')}`
}

function unique(texts: readonly string[]): readonly string[] {
  return [...new Set(texts)]
}
