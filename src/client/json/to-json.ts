import { type DescField, type DescMessage, fromBinary } from '@bufbuild/protobuf'
import { type ReflectMessage, reflect } from '@bufbuild/protobuf/reflect'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Json } from './fields.ts'

/**
 * Decodes a message to JSON that is also valid input: 64-bit numbers are decimal texts; bytes are `{"text"}` for UTF-8,
 * else `{"base64"}`. Unset fields are included, except messages and members of a oneof.
 */
export function decodeJson(message: DescMessage, bytes: Uint8Array): Json {
  try {
    return messageJson(reflect(message, fromBinary(message, bytes)))
  } catch (error) {
    const text = `answer of ${bytes.length} bytes: not a ${message.typeName}: ${messageOf(error)}`
    throw new AgentError('INTERNAL', text, { cause: error })
  }
}

function messageJson(message: ReflectMessage): Json {
  const fields: Record<string, Json> = {}
  for (const field of message.fields) {
    if (!message.isSet(field) && (field.fieldKind === 'message' || field.oneof !== undefined)) continue
    fields[field.name] = fieldJson(message, field)
  }
  return fields
}

function fieldJson(message: ReflectMessage, field: DescField): Json {
  switch (field.fieldKind) {
    case 'list':
      return [...message.get(field)].map((value) => valueJson(field, value))
    case 'map':
      return Object.fromEntries(
        [...message.get(field)].map(([key, value]) => [String(key), valueJson(field, value)]),
      )
    default:
      return valueJson(field, message.get(field))
  }
}

function valueJson(field: DescField, value: unknown): Json {
  if (isMessage(value)) return messageJson(value)
  if (field.enum !== undefined) {
    return field.enum.values.find((each) => each.number === value)?.name ?? Number(value)
  }
  if (value instanceof Uint8Array) return bytesJson(value)
  if (typeof value === 'bigint') return value.toString()
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null
}

function isMessage(value: unknown): value is ReflectMessage {
  return typeof value === 'object' && value !== null && 'isSet' in value
}

function bytesJson(bytes: Uint8Array): Json {
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) }
  } catch {
    return { base64: Buffer.from(bytes).toString('base64') }
  }
}
