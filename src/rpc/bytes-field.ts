import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { bytesOf, type Encoded, type StoredBytes } from './method.ts'

/** Shorter data is copied, which costs less than writing one more buffer. */
const BULK_BYTES = 4096

/**
 * A message whose only field is the bytes field `number`. The generated code gives the same bytes, but its writer grows by
 * doubling and copies `data` three times, which is much of the agent's work for a read of 32 KiB.
 */
export function encodeBytesField(number: number, data: Uint8Array | StoredBytes): Encoded {
  if (data.length === 0) return { payload: NOTHING }
  const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish()
  return data.length < BULK_BYTES
    ? { payload: Buffer.concat([head, bytesOf(data)]) }
    : { payload: head, bulk: data }
}

const NOTHING = new Uint8Array(0)
