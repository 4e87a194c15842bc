import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import type { Encoded } from './method.ts'

/** Less is copied: another buffer to write costs more than that. */
const BULK_BYTES = 4096

/**
 * A message of nothing but the bytes field `number`, as the generated code encodes it, but without a copy of `data`: a
 * writer that grows by doubling makes three, which is much of the agent's work for a read of 32 KiB.
 */
export function encodeBytesField(number: number, data: Uint8Array): Encoded {
  if (data.length === 0) return { payload: data }
  const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish()
  return data.length < BULK_BYTES ? { payload: Buffer.concat([head, data]) } : { payload: head, bulk: data }
}
