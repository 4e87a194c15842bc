import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import type { RequestMetadata } from '../../rpc/ttrpc/messages.ts'

/** The metadata of a ttRPC request (its field 5), of which the agent decodes the trace context alone. */
export function decodeMetadata(request: Uint8Array): RequestMetadata {
  const reader = new BinaryReader(request)
  const pairs: [string, string][] = []
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if (field === 5 && type === WireType.LengthDelimited) pairs.push(pairOf(reader.bytes()))
    else reader.skip(type, field)
  }
  return Object.fromEntries(pairs)
}

function pairOf(bytes: Uint8Array): [string, string] {
  const reader = new BinaryReader(bytes)
  const pair: [string, string] = ['', '']
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag()
    if ((field === 1 || field === 2) && type === WireType.LengthDelimited) pair[field - 1] = reader.string()
    else reader.skip(type, field)
  }
  return pair
}
