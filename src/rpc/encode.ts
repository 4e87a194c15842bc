import { BinaryWriter } from '@bufbuild/protobuf/wire'

/** A longer message is encoded by a writer of its own, because a writer keeps its memory. */
const KEPT_BYTES = 4096

/** Reused, because its first kilobyte, which is outside of the heap, costs more than the rest of a short call. */
let writer: BinaryWriter | undefined

/** The part of ts-proto's message types that encodes. */
export interface Encoder<Message> {
  encode(message: Message, writer?: BinaryWriter): { finish(): Uint8Array }
}

export function encode<Message>(type: Encoder<Message>, message: Message): Uint8Array {
  const own = writer ?? new BinaryWriter()
  // What an encoder that throws has written stays in its writer.
  writer = undefined
  const bytes = type.encode(message, own).finish()
  if (bytes.length <= KEPT_BYTES) writer = own
  return bytes
}
