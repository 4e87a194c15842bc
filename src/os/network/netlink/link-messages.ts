import type { Link, LinkChange } from '../network.ts'
import { hardwareBytes, hardwareText } from './addresses.ts'
import { type Attribute, decodeAttributes, type Message, text, textOf } from './message.ts'
import type { Request } from './route-socket.ts'

const RTM_GETLINK = 18
const RTM_SETLINK = 19
/** struct ifinfomsg: family, ARPHRD_ type, index, flags, and the mask of flags to change. */
const FIXED_BYTES = 16
const IFLA = { address: 1, name: 3, mtu: 4, families: 26, parentDeviceName: 56 }
/** In `families`: the link's IPv6 settings, with an array of its 32-bit sysctls. */
const AF_INET6 = 10
const INET6_SYSCTLS = 2
const DISABLE_IPV6 = 26
const IFF = { up: 0x1, loopback: 0x8, noarp: 0x80 }

export const LIST_LINKS: Request = { type: RTM_GETLINK, fixed: Buffer.alloc(FIXED_BYTES) }

export function decodeLink({ payload }: Message): Link {
  const attributes = decodeAttributes(payload.subarray(FIXED_BYTES))
  const name = attributes.get(IFLA.name)
  const parent = attributes.get(IFLA.parentDeviceName)
  const flags = payload.readUInt32LE(8)
  return {
    index: payload.readInt32LE(4),
    name: name === undefined ? '' : textOf(name),
    hardwareAddress: hardwareText(attributes.get(IFLA.address)),
    mtu: attributes.get(IFLA.mtu)?.readUInt32LE(0) ?? 0,
    up: (flags & IFF.up) !== 0,
    arp: (flags & IFF.noarp) === 0,
    loopback: (flags & IFF.loopback) !== 0,
    ipv6: hasIpv6(attributes.get(IFLA.families)),
    type: payload.readUInt16LE(2),
    parentDevice: parent === undefined ? '' : textOf(parent),
  }
}

function hasIpv6(families: Buffer | undefined): boolean {
  const settings = families && decodeAttributes(families).get(AF_INET6)
  const sysctls = settings && decodeAttributes(settings).get(INET6_SYSCTLS)
  if (sysctls === undefined || sysctls.length < 4 * (DISABLE_IPV6 + 1)) return false
  return sysctls.readInt32LE(4 * DISABLE_IPV6) === 0
}

export function setLinkRequest(index: number, change: LinkChange): Request {
  const fixed = Buffer.alloc(FIXED_BYTES)
  fixed.writeInt32LE(index, 4)
  const wanted = [
    { flag: IFF.up, on: change.up },
    { flag: IFF.noarp, on: change.arp === undefined ? undefined : !change.arp },
  ]
  let flags = 0
  let mask = 0
  for (const { flag, on } of wanted) {
    if (on === undefined) continue
    mask |= flag
    if (on) flags |= flag
  }
  fixed.writeUInt32LE(flags, 8)
  fixed.writeUInt32LE(mask, 12)
  const attributes: Attribute[] = []
  if (change.hardwareAddress !== undefined)
    attributes.push({ type: IFLA.address, value: hardwareBytes(change.hardwareAddress) })
  if (change.mtu !== undefined) attributes.push({ type: IFLA.mtu, value: change.mtu })
  if (change.name !== undefined) attributes.push({ type: IFLA.name, value: text(change.name) })
  return { type: RTM_SETLINK, fixed, attributes }
}
