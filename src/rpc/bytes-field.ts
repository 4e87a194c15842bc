import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { bytesOf, type StoredBytes } from '../base/stored-bytes.ts'
import type { Encoded } from './method.ts'

/** Shorter data is copied, which costs less than one more buffer to write. */
const BULK_BYTES = 4096

/** Replaces the generated writer for a message of one bytes field, because that writer copies `data` three times. */
export function encodeBytesField(number: number, data: Uint8Array | StoredBytes): Encoded {
  if (data.length === 0) return { payload: NOTHING }
  const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish()
  return data.length < BULK_BYTES
    ? { payload: Buffer.concat([head, bytesOf(data)]) }
    : { payload: head, bulk: data }
}

/**
 * The same as one buffer, which is all that gRPC can send. Each message lasts until the next one: V8 collects the garbage of
 * the whole heap after some 25 MB of new buffers.
 */
export function bytesFieldEncoder(number: number): (data: Uint8Array) => Uint8Array {
  let room = Buffer.alloc(0)
  return (data) => {
    const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish()
    const bytes = head.length + data.length
    if (room.length < bytes) room = Buffer.allocUnsafeSlow(bytes)
    room.set(head)
    room.set(data, head.length)
    return room.subarray(0, bytes)
  }
}

const NOTHING = new Uint8Array(0)
