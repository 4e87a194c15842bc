import { type DescEnum, type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf'
import { didYouMean, normalized } from '../../base/suggest.mjs'

export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }

/** A value does not fit its field. The message begins with the field's path. */
export class FieldError extends Error {}

/** Finds a field by its name in the proto, in JSON or in OCI. Throws {@link FieldError}. */
export function fieldNamed(message: DescMessage, name: string, path: string): DescField {
  const exact = message.fields.find((field) => field.name === name || field.jsonName === name)
  const found = exact ?? message.fields.find((field) => normalized(field.name) === normalized(name))
  if (found !== undefined) return found
  const names = message.fields.map((field) => field.name)
  const all = names.length === 0 ? 'which has no fields' : `want one of ${names.join(', ')}`
  throw new FieldError(`${path}: unknown field of ${message.typeName}${didYouMean(name, names, all)}`)
}

/** Such as `string`, `types.Interface[]` or `map<string, string>`. */
export function typeText(field: DescField): string {
  switch (field.fieldKind) {
    case 'scalar':
      return scalarText(field.scalar)
    case 'enum':
      return field.enum.typeName
    case 'message':
      return field.message.typeName
    case 'list':
      return `${elementText(field)}[]`
    case 'map':
      return `map<${scalarText(field.mapKey)}, ${elementText(field)}>`
    default:
      return field satisfies never
  }
}

function elementText(field: DescField & { fieldKind: 'list' | 'map' }): string {
  if (field.message !== undefined) return field.message.typeName
  if (field.enum !== undefined) return field.enum.typeName
  return field.scalar === undefined ? '' : scalarText(field.scalar)
}

function scalarText(type: ScalarType): string {
  return ScalarType[type].toLowerCase()
}

/** Finds an enum value by name or number. Throws {@link FieldError}. */
export function enumNumber(type: DescEnum, value: Json, path: string): number {
  const text = String(value)
  const prefix = /^-?\d+$/.test(text) ? undefined : normalized(text)
  const found = type.values.find(
    (each) => String(each.number) === text || (prefix !== undefined && normalized(each.name) === prefix),
  )
  if (found !== undefined) return found.number
  const names = type.values.map((each) => each.name)
  const hint = didYouMean(text, names, `want one of ${names.join(', ')}`)
  throw new FieldError(`${path}: unknown value ${JSON.stringify(value)} of ${type.typeName}${hint}`)
}

const RANGES: Partial<Record<ScalarType, readonly [bigint, bigint]>> = {
  [ScalarType.INT32]: [-(2n ** 31n), 2n ** 31n - 1n],
  [ScalarType.SINT32]: [-(2n ** 31n), 2n ** 31n - 1n],
  [ScalarType.SFIXED32]: [-(2n ** 31n), 2n ** 31n - 1n],
  [ScalarType.UINT32]: [0n, 2n ** 32n - 1n],
  [ScalarType.FIXED32]: [0n, 2n ** 32n - 1n],
  [ScalarType.INT64]: [-(2n ** 63n), 2n ** 63n - 1n],
  [ScalarType.SINT64]: [-(2n ** 63n), 2n ** 63n - 1n],
  [ScalarType.SFIXED64]: [-(2n ** 63n), 2n ** 63n - 1n],
  [ScalarType.UINT64]: [0n, 2n ** 64n - 1n],
  [ScalarType.FIXED64]: [0n, 2n ** 64n - 1n],
}

/** A scalar in the JSON form of protocol buffers; numbers may be decimal texts. Throws {@link FieldError}. */
export function scalarJson(type: ScalarType, value: Json, path: string): Json {
  const wrong = (want: string) => new FieldError(`${path}: ${shown(value)}, want ${want}`)
  const range = RANGES[type]
  if (range !== undefined) {
    const number = wholeNumber(value)
    if (number === undefined) throw wrong(`a whole number (${scalarText(type)})`)
    if (number < range[0] || number > range[1])
      throw wrong(`${range[0]} to ${range[1]} (${scalarText(type)})`)
    return number.toString()
  }
  switch (type) {
    case ScalarType.BOOL:
      if (value === true || value === 'true') return true
      if (value === false || value === 'false') return false
      throw wrong('true or false')
    case ScalarType.STRING:
      if (typeof value !== 'string') throw wrong('a text')
      return value
    case ScalarType.BYTES:
      return bytesOf(value, path).toString('base64')
    default: {
      const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value
      if (typeof number !== 'number' || Number.isNaN(number)) throw wrong('a number')
      return number
    }
  }
}

function wholeNumber(value: Json): bigint | undefined {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value)
  if (typeof value !== 'string' || !/^-?\d{1,20}$|^0x[0-9a-f]{1,16}$|^0o[0-7]{1,22}$/i.test(value))
    return undefined
  return BigInt(value)
}

/** Base64, a list of numbers, or `{"text"}`, `{"base64"}`, `{"hex"}`. */
function bytesOf(value: Json, path: string): Buffer {
  const wrong = () =>
    new FieldError(
      `${path}: ${shown(value)}, want base64, a list of numbers, {"text": …}, {"hex": …} or {"base64": …}`,
    )
  if (typeof value === 'string') return decoded(value, 'base64', wrong)
  if (isList(value)) {
    if (!value.every((each) => typeof each === 'number' && Number.isInteger(each) && each >= 0 && each < 256))
      throw wrong()
    return Buffer.from(value.map(Number))
  }
  const [[kind, text] = ['', null], ...more] = isObject(value) ? Object.entries(value) : []
  if (typeof text !== 'string' || more.length > 0) throw wrong()
  if (kind === 'text') return Buffer.from(text)
  if (kind === 'hex' || kind === 'base64') return decoded(text, kind, wrong)
  throw wrong()
}

function decoded(text: string, encoding: 'base64' | 'hex', wrong: () => FieldError): Buffer {
  const pattern = encoding === 'hex' ? /^([0-9a-f]{2})*$/i : /^[\w+/-]*={0,2}$/
  if (!pattern.test(text)) throw wrong()
  return Buffer.from(text, encoding)
}

export function isObject(value: Json): value is { readonly [key: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value)
}

export function shown(value: Json): string {
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}
