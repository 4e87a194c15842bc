import type { Route } from '../network.ts'
import { FAMILY_NUMBERS, familyOfNumber, ipBytes, ipText, prefixOf } from './addresses.ts'
import { type Attribute, decodeAttributes, type Message } from './message.ts'
import type { Request } from './route-socket.ts'

const RTM_NEWROUTE = 24
const RTM_DELROUTE = 25
const RTM_GETROUTE = 26
/** struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope, type, flags. */
const FIXED_BYTES = 12
const RTA = {
  destination: 1,
  source: 2,
  oif: 4,
  gateway: 5,
  priority: 6,
  preferredSource: 7,
  metrics: 8,
  table: 15,
}
const RTAX_MTU = 2
const MAIN_TABLE = 254
const UNICAST = 1
/** RTM_F_CLONED: a cache entry, such as a learnt path MTU. */
const CLONED = 0x200
/** RTNH_F_DEAD, PERVASIVE and ONLINK; the other bits report the state of the link. */
const KEPT_FLAGS = 0x7

export const LIST_ROUTES: Request = { type: RTM_GETROUTE, fixed: Buffer.alloc(FIXED_BYTES) }

/** undefined for anything but a unicast route of the main table. */
export function decodeRoute({ payload }: Message): Route | undefined {
  const family = familyOfNumber(payload.readUInt8(0))
  const flags = payload.readUInt32LE(8)
  if (family === undefined || payload.readUInt8(7) !== UNICAST || (flags & CLONED) !== 0) return undefined
  const attributes = decodeAttributes(payload.subarray(FIXED_BYTES))
  if ((attributes.get(RTA.table)?.readUInt32LE(0) ?? payload.readUInt8(4)) !== MAIN_TABLE) return undefined
  const gateway = ipText(attributes.get(RTA.gateway))
  const linkIndex = attributes.get(RTA.oif)?.readUInt32LE(0)
  const preferredSource = ipText(attributes.get(RTA.preferredSource))
  const sourceLength = payload.readUInt8(2)
  const priority = attributes.get(RTA.priority)?.readUInt32LE(0)
  const metrics = attributes.get(RTA.metrics)
  const mtu = metrics && decodeAttributes(metrics).get(RTAX_MTU)?.readUInt32LE(0)
  return {
    family,
    destination: prefixOf(attributes.get(RTA.destination), payload.readUInt8(1), family),
    ...(gateway === undefined ? {} : { gateway }),
    ...(linkIndex === undefined ? {} : { linkIndex }),
    ...(preferredSource === undefined ? {} : { preferredSource }),
    ...(sourceLength === 0 ? {} : { source: prefixOf(attributes.get(RTA.source), sourceLength, family) }),
    scope: payload.readUInt8(6),
    protocol: payload.readUInt8(5),
    ...(priority === undefined ? {} : { priority }),
    ...(mtu === undefined ? {} : { mtu }),
    flags: flags & KEPT_FLAGS,
  }
}

export function newRouteRequest(route: Route): Request {
  return request(RTM_NEWROUTE, route)
}

export function removeRouteRequest(route: Route): Request {
  return request(RTM_DELROUTE, route)
}

function request(type: number, route: Route): Request {
  const { family, destination, source, priority, mtu } = route
  const fixed = Buffer.alloc(FIXED_BYTES)
  const lengths = [destination.prefixLength, source?.prefixLength ?? 0]
  fixed.set([FAMILY_NUMBERS[family], ...lengths, 0, MAIN_TABLE, route.protocol, route.scope, UNICAST])
  fixed.writeUInt32LE(route.flags >>> 0, 8)
  const ip = (attribute: number, address: string): Attribute => ({
    type: attribute,
    value: ipBytes(address, family),
  })
  const attributes: Attribute[] = []
  if (destination.prefixLength > 0) attributes.push(ip(RTA.destination, destination.address))
  if (source !== undefined) attributes.push(ip(RTA.source, source.address))
  if (route.gateway !== undefined) attributes.push(ip(RTA.gateway, route.gateway))
  if (route.preferredSource !== undefined) attributes.push(ip(RTA.preferredSource, route.preferredSource))
  if (route.linkIndex !== undefined) attributes.push({ type: RTA.oif, value: route.linkIndex })
  if (priority !== undefined) attributes.push({ type: RTA.priority, value: priority })
  if (mtu !== undefined) attributes.push({ type: RTA.metrics, value: [{ type: RTAX_MTU, value: mtu }] })
  return { type, fixed, attributes }
}
