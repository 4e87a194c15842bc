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

/** The same as one buffer, which is all that gRPC can send. */
export function wholeBytesField(number: number, data: Uint8Array): Uint8Array {
  const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish()
  return Buffer.concat([head, data])
}

const NOTHING = new Uint8Array(0)
