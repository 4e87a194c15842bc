import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { AgentError, messageOf } from '../base/errors.ts'
import { type MessageField, messageFields } from '../gen/message-fields.ts'
import { LIMITS } from './limits.ts'

type FieldsByNumber = ReadonlyMap<number, MessageField>

const fieldsByMessage = new Map<string, FieldsByNumber>()

/** A shorter request is not counted; its number of bytes stands for its elements. */
const SHORT_BYTES = 512

/**
 * Of an unknown `message` (a full name) only the outermost elements are counted. Throws RESOURCE_EXHAUSTED with the field
 * beyond the limit, and {@link undecodable} for invalid bytes, which the decoder may read differently.
 */
export function countElements(payload: Uint8Array, message: string | undefined): number {
  // Each element takes at least two bytes, except packed numbers, which take one.
  if (payload.length <= SHORT_BYTES) return payload.length
  const reader = new BinaryReader(payload)
  let elements = 0
  const count = (path: readonly string[], items = 1): void => {
    elements += items
    if (elements <= LIMITS.elements) return
    throw new AgentError(
      'RESOURCE_EXHAUSTED',
      `${path.join('.')}: more than ${LIMITS.elements} elements in one request`,
    )
  }
  const walk = (end: number, fields: FieldsByNumber | undefined, path: readonly string[]): void => {
    while (reader.pos < end) {
      const [number, type] = reader.tag()
      const field = fields?.get(number)
      const here = [...path, field?.name ?? `field ${number}`]
      count(here)
      if (type !== WireType.LengthDelimited || field === undefined) {
        reader.skip(type, number)
      } else {
        const inner = reader.uint32()
        const innerEnd = reader.pos + inner
        if (innerEnd > end) throw new RangeError(`${here.join('.')}: ends after the message that it is in`)
        if (field.isMap) walk(innerEnd, entryOf(field), here)
        else if (field.message !== undefined) walk(innerEnd, fieldsOf(field.message), here)
        else if (field.isPacked) count(here, numbersIn(payload.subarray(reader.pos, innerEnd)))
        reader.pos = innerEnd
      }
    }
    if (reader.pos > end) throw new RangeError(`${path.join('.')}: its last field ends after it`)
  }
  try {
    walk(payload.length, message === undefined ? undefined : fieldsOf(message), [])
  } catch (error) {
    throw error instanceof AgentError ? error : undecodable(error)
  }
  return elements
}

export function undecodable(error: unknown): AgentError {
  return new AgentError('UNKNOWN', `request: cannot be decoded: ${messageOf(error)}`)
}

function fieldsOf(message: string): FieldsByNumber {
  let fields = fieldsByMessage.get(message)
  if (fields === undefined) {
    fields = new Map((messageFields()[message] ?? []).map((field) => [field.number, field]))
    fieldsByMessage.set(message, fields)
  }
  return fields
}

/** A map's entry is encoded as a message of two fields. */
function entryOf({ property, message }: MessageField): FieldsByNumber {
  const key = { number: 1, name: 'key', property }
  const value = { number: 2, name: 'value', property, ...(message === undefined ? {} : { message }) }
  return new Map([
    [1, key],
    [2, value],
  ])
}

/** Counts varints: no request packs numbers of fixed length. Throws RangeError for an incomplete last number. */
function numbersIn(bytes: Uint8Array): number {
  if ((bytes.at(-1) ?? 0) >= 0x80) throw new RangeError('a packed number ends after its field')
  let numbers = 0
  for (const byte of bytes) if (byte < 0x80) numbers += 1
  return numbers
}
