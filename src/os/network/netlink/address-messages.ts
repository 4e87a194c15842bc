import type { LinkAddress } from '../network.ts'
import { FAMILY_NUMBERS, familyOfNumber, ipBytes, ipText } from './addresses.ts'
import { type Attribute, decodeAttributes, type Message } from './message.ts'
import type { Request } from './route-socket.ts'

const RTM_NEWADDR = 20
const RTM_DELADDR = 21
const RTM_GETADDR = 22
/** struct ifaddrmsg: family, prefix length, flags, scope, link. */
const FIXED_BYTES = 8
const IFA = { address: 1, local: 2, broadcast: 4, flags: 8 }

export const LIST_ADDRESSES: Request = { type: RTM_GETADDR, fixed: Buffer.alloc(FIXED_BYTES) }

/** undefined when the address is not IP. */
export function decodeAddress({ payload }: Message): LinkAddress | undefined {
  const family = familyOfNumber(payload.readUInt8(0))
  const attributes = decodeAttributes(payload.subarray(FIXED_BYTES))
  // With a peer, the address itself is `local`. Without one, IPv6 leaves `local` out and IPv4 sends the same twice.
  const address = ipText(attributes.get(IFA.local) ?? attributes.get(IFA.address))
  if (family === undefined || address === undefined) return undefined
  const peer = ipText(attributes.get(IFA.address))
  const broadcast = ipText(attributes.get(IFA.broadcast))
  return {
    linkIndex: payload.readUInt32LE(4),
    family,
    address,
    prefixLength: payload.readUInt8(1),
    ...(peer === undefined || peer === address ? {} : { peer }),
    ...(broadcast === undefined ? {} : { broadcast }),
    scope: payload.readUInt8(3),
    flags: attributes.get(IFA.flags)?.readUInt32LE(0) ?? payload.readUInt8(2),
  }
}

export function newAddressRequest(address: LinkAddress): Request {
  return request(RTM_NEWADDR, address, [{ type: IFA.flags, value: address.flags }])
}

export function removeAddressRequest(address: LinkAddress): Request {
  return request(RTM_DELADDR, address, [])
}

function request(type: number, wanted: LinkAddress, more: readonly Attribute[]): Request {
  const { family, address, peer = address, broadcast } = wanted
  const fixed = Buffer.alloc(FIXED_BYTES)
  fixed.writeUInt8(FAMILY_NUMBERS[family], 0)
  fixed.writeUInt8(wanted.prefixLength, 1)
  fixed.writeUInt8(wanted.scope, 3)
  fixed.writeUInt32LE(wanted.linkIndex, 4)
  const attributes: Attribute[] = [
    { type: IFA.local, value: ipBytes(address, family) },
    { type: IFA.address, value: ipBytes(peer, family) },
    ...more,
  ]
  if (broadcast !== undefined) attributes.push({ type: IFA.broadcast, value: ipBytes(broadcast, family) })
  return { type, fixed, attributes }
}
