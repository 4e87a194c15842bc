import { type DescField, type DescMessage, fromJson, type JsonValue, toBinary } from '@bufbuild/protobuf'
import {
  enumNumber,
  FieldError,
  fieldNamed,
  isList,
  isObject,
  type Json,
  scalarJson,
  shown,
} from './fields.ts'

/** Encodes a message given as JSON. Throws {@link FieldError} that names an unknown or wrong field. */
export function encodeJson(message: DescMessage, json: Json): Uint8Array {
  try {
    // The value is plain JSON; bufbuild's type only lacks `readonly`.
    const canonical = messageJson(message, json, '') as JsonValue
    return toBinary(message, fromJson(message, canonical))
  } catch (error) {
    if (error instanceof FieldError || !(error instanceof Error)) throw error
    throw new FieldError(error.message, { cause: error })
  }
}

/** The message with the names and values of the JSON form of protocol buffers. */
function messageJson(message: DescMessage, json: Json, path: string): Json {
  if (!isObject(json)) throw new FieldError(`${path || 'request'}: ${shown(json)}, want an object ({…})`)
  const fields: Record<string, Json> = {}
  for (const [name, value] of Object.entries(json)) {
    const at = path === '' ? name : `${path}.${name}`
    const field = fieldNamed(message, name, at)
    if (value === null) continue
    if (fields[field.jsonName] !== undefined) throw new FieldError(`${at}: given twice, want it once`)
    fields[field.jsonName] = fieldJson(field, value, at)
  }
  return fields
}

function fieldJson(field: DescField, value: Json, path: string): Json {
  if (field.fieldKind === 'list') {
    if (!isList(value)) throw new FieldError(`${path}: ${shown(value)}, want a list ([…])`)
    return value.map((each, index) => elementJson(field, each, `${path}[${index}]`))
  }
  if (field.fieldKind === 'map') {
    if (!isObject(value)) throw new FieldError(`${path}: ${shown(value)}, want an object ({…})`)
    const entries = Object.entries(value)
    return Object.fromEntries(
      entries.map(([key, each]) => [key, elementJson(field, each, `${path}[${JSON.stringify(key)}]`)]),
    )
  }
  return elementJson(field, value, path)
}

function elementJson(field: DescField, value: Json, path: string): Json {
  if (field.message !== undefined) return messageJson(field.message, value, path)
  if (field.enum !== undefined) return enumNumber(field.enum, value, path)
  if (field.scalar === undefined) throw new FieldError(`${path}: cannot be given as JSON`)
  return scalarJson(field.scalar, value, path)
}
