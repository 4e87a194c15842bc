import { ADDRESS_BITS, familyOf, formatIp, type IpFamily, parseIp } from '../ip-address.ts'

/** The name of QEMU's firmware item in which a guest finds its VMMetadata. */
export const METADATA_ITEM = 'opt/vm.metropolis.monogon.dev/v1/metadata.pb'

/** As PTPAddress of proto/vm.proto. */
interface Ends {
  readonly ip: string
  readonly peerIp: string
}

/** One family's link to the host. */
export interface PointToPoint {
  readonly family: IpFamily
  /** The VM's own address, without a prefix length. */
  readonly ip: string
  /** The address of the host's end, which is also the default gateway. */
  readonly peerIp: string
}

export interface CheckedLinks {
  readonly links: readonly PointToPoint[]
  readonly problems: readonly string[]
}

const FIELDS = { v4: 'ipv4', v6: 'ipv6' } as const
const NAMES: Readonly<Record<IpFamily, string>> = { ipv4: 'IPv4', ipv6: 'IPv6' }

/** Checks each family separately, so that a wrong one does not affect the other. A problem is one sentence. */
export function checkLinks(
  config: { readonly [Field in keyof typeof FIELDS]?: Ends | undefined } | undefined,
): CheckedLinks {
  const links: PointToPoint[] = []
  const problems: string[] = []
  for (const field of ['v4', 'v6'] as const) {
    const given = config?.[field]
    if (given === undefined) continue
    const checked = checkLink(FIELDS[field], given)
    if (typeof checked === 'string') problems.push(`network_config.${field}${checked}`)
    else links.push(checked)
  }
  return { links, problems }
}

function checkLink(family: IpFamily, { ip, peerIp }: Ends): PointToPoint | string {
  const own = checkAddress(family, ip)
  if (typeof own === 'string') return `.ip ${own}`
  const peer = checkAddress(family, peerIp)
  if (typeof peer === 'string') return `.peer_ip ${peer}`
  if (Buffer.compare(own, peer) === 0) return ': ip and peer_ip are the same'
  return { family, ip: formatIp(own), peerIp: formatIp(peer) }
}

/** Returns a text for a wrong address. Only the full prefix length is valid: a point-to-point link has no network. */
function checkAddress(family: IpFamily, text: string): Uint8Array | string {
  if (text === '') return 'is missing'
  const [, bare = text, length] = /^([^/]*)(\/.*)$/.exec(text) ?? []
  const address = parseIp(bare)
  if (address === undefined || familyOf(address) !== family)
    return `${text} is not an ${NAMES[family]} address`
  const full = `/${ADDRESS_BITS[family]}`
  if (length !== undefined && length !== full) {
    return `${text}: a point-to-point link needs ${full}`
  }
  const kind = kindOf(family, address)
  return kind === 'unicast' ? address : `${text} is ${kind}`
}

function kindOf(family: IpFamily, bytes: Uint8Array): string {
  const [first = 0] = bytes
  const allButLast = bytes.subarray(0, -1)
  if (bytes.every((byte) => byte === 0)) return 'the unspecified address'
  if (family === 'ipv4') {
    if (first === 127) return 'a loopback address'
    if (first < 224) return 'unicast'
    return first < 240 ? 'a multicast address' : 'a reserved address'
  }
  if (first === 0xff) return 'a multicast address'
  return allButLast.every((byte) => byte === 0) ? 'a loopback address' : 'unicast'
}
