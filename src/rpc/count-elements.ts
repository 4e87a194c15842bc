import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { AgentError, messageOf } from '../base/errors.ts'
import { MESSAGE_FIELDS, type MessageField } from '../gen/message-fields.ts'
import { LIMITS } from './limits.ts'

type FieldsByNumber = ReadonlyMap<number, MessageField>

const fieldsByMessage = new Map<string, FieldsByNumber>()

/** Requests of fewer bytes are not worth counting: each byte is taken for an element, which it hardly is. */
const SHORT_BYTES = 512

/**
 * Counts the elements of an encoded request before it is decoded. `message` is its full name, such as
 * `grpc.CreateContainerRequest`; of a message that is in no proto only the outermost elements are counted. Throws
 * RESOURCE_EXHAUSTED, which names the field that has one too many, and {@link undecodable} for bytes that are no message:
 * the decoder would read on where the count has lost its place.
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

/** The failure of a request whose bytes are no message. */
export function undecodable(error: unknown): AgentError {
  return new AgentError('UNKNOWN', `request: cannot be decoded: ${messageOf(error)}`)
}

function fieldsOf(message: string): FieldsByNumber {
  let fields = fieldsByMessage.get(message)
  if (fields === undefined) {
    fields = new Map((MESSAGE_FIELDS[message] ?? []).map((field) => [field.number, field]))
    fieldsByMessage.set(message, fields)
  }
  return fields
}

/** An entry of a map is a message of two fields. */
function entryOf({ property, message }: MessageField): FieldsByNumber {
  const key = { number: 1, name: 'key', property }
  const value = { number: 2, name: 'value', property, ...(message === undefined ? {} : { message }) }
  return new Map([
    [1, key],
    [2, value],
  ])
}

/**
 * How many varints are in `bytes`. No request of the API packs numbers of fixed length. Throws a RangeError when the last
 * one ends after them.
 */
function numbersIn(bytes: Uint8Array): number {
  if ((bytes.at(-1) ?? 0) >= 0x80) throw new RangeError('a packed number ends after its field')
  let numbers = 0
  for (const byte of bytes) if (byte < 0x80) numbers += 1
  return numbers
}
