import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import type { ReadStreamResponse } from '../../gen/agent.ts'

/**
 * A `ReadStreamResponse` as the generated code encodes it, but with one copy of its data: a writer that grows by doubling
 * makes three, which was a fifth of the agent's work for a read of 32 KiB.
 */
export function encodeReadResponse({ data }: ReadStreamResponse): Uint8Array {
  if (data.length === 0) return data
  const head = new BinaryWriter().tag(1, WireType.LengthDelimited).uint32(data.length).finish()
  return Buffer.concat([head, data])
}
