import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { messageOf } from '../../base/errors.ts'
import { ADDRESS_BITS, formatIp, maskHostBits, parseIp } from '../../base/ip-address.ts'
import { checkLinks, METADATA_ITEM, type PointToPoint } from '../../base/vm-metadata/point-to-point.ts'
import { VMMetadata } from '../../gen/vm.ts'
import type { UserNetworkBackend, UserSubnet } from '../../host/spec/spec.ts'
import { specKey } from '../../host/spec/spec-key.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import type { GuestParts } from './guest-spec.ts'

/**
 * Reads the file of `--metadata`: YAML (which includes JSON) with the fields of VMMetadata under their names in
 * proto/vm.proto. Throws {@link UsageError} naming the first field that a guest could not use.
 */
export function readMetadata(path: string): VMMetadata {
  const refuse = (reason: string): never => {
    throw new UsageError(`--metadata ${path}: ${reason}`)
  }
  const { name, network_config: network } = fieldsOf(
    load(path, refuse),
    ['name', 'network_config'],
    '',
    refuse,
  )
  const { v4, v6 } = fieldsOf(network, ['v4', 'v6'], 'network_config', refuse)
  const end = (value: unknown, where: string) => {
    if (value === undefined || value === null) return undefined
    const { ip, peer_ip: peerIp } = fieldsOf(value, ['ip', 'peer_ip'], where, refuse)
    return { ip: textOf(ip, `${where}.ip`, refuse), peerIp: textOf(peerIp, `${where}.peer_ip`, refuse) }
  }
  const metadata = VMMetadata.create({
    name: textOf(name, 'name', refuse),
    networkConfig: { v4: end(v4, 'network_config.v4'), v6: end(v6, 'network_config.v6') },
  })
  const [problem] = checkLinks(metadata.networkConfig).problems
  return problem === undefined ? metadata : refuse(problem)
}

type Refuse = (reason: string) => never

function load(path: string, refuse: Refuse): unknown {
  try {
    return parse(readFileSync(path, 'utf8'))
  } catch (error) {
    // The first line names the place; the others only show it.
    return refuse(messageOf(error).split('\n')[0]?.replace(/:$/, '') ?? '')
  }
}

/** The fields of a mapping, which may have only these names; none when `value` is absent. `where` is empty at the top. */
function fieldsOf<Name extends string>(
  value: unknown,
  names: readonly Name[],
  where: string,
  refuse: Refuse,
): { readonly [Key in Name]?: unknown } {
  if (value === undefined || value === null) return {}
  const has = `${where === '' ? 'it' : where} has ${names.join(' and ')}`
  if (typeof value !== 'object' || Array.isArray(value)) return refuse(`${has}, and is no ${kindOf(value)}`)
  const fields: { [Key in Name]?: unknown } = {}
  for (const [key, field] of Object.entries(value)) {
    const name = names.find((candidate) => candidate === key)
    if (name === undefined) return refuse(`${has}, and no ${key}`)
    fields[name] = field
  }
  return fields
}

function textOf(value: unknown, where: string, refuse: Refuse): string {
  if (value === undefined || value === null) return ''
  return typeof value === 'string'
    ? value
    : refuse(`${where} is a text, and no ${kindOf(value)}: put it in quotes`)
}

function kindOf(value: unknown): string {
  return Array.isArray(value) ? 'list' : typeof value === 'string' ? 'text' : typeof value
}

/** Locally administered, and different from the card of a guest that is reached over TCP. */
const MAC = '52:54:00:00:00:03'
const SLOT = 6

/**
 * The parts that tell a guest its `metadata`: the firmware item, whose content this writes into `folder`, and a network
 * card whose other end answers as the peer. Throws {@link UsageError} when QEMU's user network cannot hold both ends.
 */
export function metadataParts(
  metadata: VMMetadata,
  folder: string,
): Required<Pick<GuestParts, 'append' | 'extra'>> {
  const path = join(folder, 'metadata.pb')
  writeFileSync(path, VMMetadata.encode(metadata).finish())
  const { links } = checkLinks(metadata.networkConfig)
  const item = {
    devices: { [ITEM]: { kind: 'fw-cfg', name: METADATA_ITEM, backend: ITEM_CONTENT } },
    backends: { [ITEM_CONTENT]: { kind: 'content', path } },
  } as const
  if (links.length === 0) return { append: [], extra: item }
  return {
    // The host may reach the guest by another card.
    append: [`agent.metadata_interface=${MAC}`],
    extra: {
      devices: { ...item.devices, [CARD]: { kind: 'nic', slot: SLOT, mac: MAC, backend: NETWORK } },
      backends: { ...item.backends, [NETWORK]: userNetworkFor(links) },
    },
  }
}

const ITEM = specKey('metadata')
const ITEM_CONTENT = specKey('metadata-content')
const CARD = specKey('metadata-card')
const NETWORK = specKey('metadata-network')

/**
 * QEMU's user network answers for the addresses of one subnet and forwards all others to the outside. The subnet has to
 * hold both ends and a name server; a wide one would hide much of the outside.
 */
const PREFIX_LENGTHS = {
  ipv4: { shortest: 8, longest: 29 },
  ipv6: { shortest: 16, longest: 120 },
} as const

/**
 * A network without privileges in which QEMU itself is the host's end of each link. What the guest sends to that end
 * reaches this machine's loopback; everything else goes to the outside. Throws {@link UsageError} when the two ends are
 * too far apart.
 */
function userNetworkFor(links: readonly PointToPoint[]): UserNetworkBackend {
  return { kind: 'user-network', forwards: [], subnets: links.map(subnetOf) }
}

function subnetOf({ family, ip, peerIp }: PointToPoint): UserSubnet {
  const [own, peer] = [parseIp(ip), parseIp(peerIp)]
  const { shortest, longest } = PREFIX_LENGTHS[family]
  const prefixLength = own && peer ? Math.min(commonBits(own, peer), longest) : 0
  if (own === undefined || prefixLength < shortest) {
    throw new UsageError(
      `--metadata: ${ip} and ${peerIp} differ in their first ${shortest} bits, which QEMU's user network cannot span`,
    )
  }
  const network = maskHostBits(own, prefixLength)
  return {
    family,
    network: formatIp(network),
    prefixLength,
    host: peerIp,
    guest: ip,
    nameServer: firstFree(network, [ip, peerIp]),
  }
}

function commonBits(one: Uint8Array, other: Uint8Array): number {
  const bits = ADDRESS_BITS[one.length === 4 ? 'ipv4' : 'ipv6']
  for (let length = bits; length > 0; length--) {
    if (Buffer.compare(maskHostBits(one, length), maskHostBits(other, length)) === 0) return length
  }
  return 0
}

function firstFree(network: Uint8Array, taken: readonly string[]): string {
  const address = Uint8Array.from(network)
  const last = address.length - 1
  do address[last] = (address[last] ?? 0) + 1
  while (taken.includes(formatIp(address)))
  return formatIp(address)
}
