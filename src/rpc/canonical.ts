import { type Encoder, encode } from './encode.ts'

/** Equal bytes for equal messages: some clients shuffle the entries of maps. */
export function canonicalBytes<Message>(type: Encoder<Message>, message: Message): Uint8Array {
  // `inOrder` changes the order of keys only.
  return encode(type, inOrder(message) as Message)
}

function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder)
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
  const entries = Object.entries(value).map(([key, item]) => [key, inOrder(item)] as const)
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)))
}
