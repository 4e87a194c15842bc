import type { Neighbor } from '../network.ts'
import { FAMILY_NUMBERS, familyOfNumber, hardwareBytes, hardwareText, ipBytes, ipText } from './addresses.ts'
import { type Attribute, decodeAttributes, type Message } from './message.ts'
import type { Request } from './route-socket.ts'

const RTM_NEWNEIGH = 28
const RTM_DELNEIGH = 29
const RTM_GETNEIGH = 30
/** struct ndmsg: family, link, state, flags, type. */
const FIXED_BYTES = 12
const NDA = { destination: 1, hardwareAddress: 2 }

export const LIST_NEIGHBORS: Request = { type: RTM_GETNEIGH, fixed: Buffer.alloc(FIXED_BYTES) }

/** undefined when the entry is not IP, such as a bridge's. */
export function decodeNeighbor({ payload }: Message): Neighbor | undefined {
  const family = familyOfNumber(payload.readUInt8(0))
  const attributes = decodeAttributes(payload.subarray(FIXED_BYTES))
  const address = ipText(attributes.get(NDA.destination))
  if (family === undefined || address === undefined) return undefined
  return {
    linkIndex: payload.readInt32LE(4),
    family,
    address,
    hardwareAddress: hardwareText(attributes.get(NDA.hardwareAddress)),
    state: payload.readUInt16LE(8),
    flags: payload.readUInt8(10),
  }
}

export function newNeighborRequest(neighbor: Neighbor): Request {
  return request(RTM_NEWNEIGH, neighbor)
}

export function removeNeighborRequest(neighbor: Neighbor): Request {
  return request(RTM_DELNEIGH, neighbor)
}

function request(type: number, neighbor: Neighbor): Request {
  const { family, hardwareAddress } = neighbor
  const fixed = Buffer.alloc(FIXED_BYTES)
  fixed.writeUInt8(FAMILY_NUMBERS[family], 0)
  fixed.writeInt32LE(neighbor.linkIndex, 4)
  fixed.writeUInt16LE(neighbor.state, 8)
  fixed.writeUInt8(neighbor.flags, 10)
  const attributes: Attribute[] = [{ type: NDA.destination, value: ipBytes(neighbor.address, family) }]
  if (hardwareAddress !== '')
    attributes.push({ type: NDA.hardwareAddress, value: hardwareBytes(hardwareAddress) })
  return { type, fixed, attributes }
}
