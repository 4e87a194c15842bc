import { didYouMean } from '../../../base/suggest.mjs'
import { refuse, shown } from '../../spec/component-path.ts'

export type JsonSchema = Readonly<Record<string, unknown>>

/** A description of a value, from which come its type, its reader and its JSON Schema. */
export interface Shape<T> {
  /** Throws INVALID_ARGUMENT that names the field by its path `at`, and what is allowed. */
  readonly read: (value: unknown, at: string) => T
  readonly schema: JsonSchema
  readonly isOptional?: true
}

/** The type of what a shape reads. */
export type Read<S> = S extends Shape<infer T> ? T : never

type Fields = Readonly<Record<string, Shape<unknown>>>
type OptionalNames<F extends Fields> = {
  [Name in keyof F]: undefined extends Read<F[Name]> ? Name : never
}[keyof F]
type ObjectOf<F extends Fields> = { readonly [Name in Exclude<keyof F, OptionalNames<F>>]: Read<F[Name]> } & {
  readonly [Name in OptionalNames<F>]?: Read<F[Name]>
}

/** An object with these fields and no others. */
export function object<F extends Fields>(fields: F, description?: string): Shape<ObjectOf<F>> {
  const names = Object.keys(fields)
  const required = names.filter((name) => fields[name]?.isOptional !== true)
  const properties = Object.fromEntries(Object.entries(fields).map(([name, { schema }]) => [name, schema]))
  const read = (value: unknown, at: string) => {
    if (!isObject(value)) refuse(at, `${kindOf(value)}, want an object with ${names.join(', ')}`)
    const unknown = Object.keys(value).find((name) => !Object.hasOwn(fields, name))
    if (unknown !== undefined) {
      refuse(fieldPath(at, unknown), `unknown field${didYouMean(unknown, names, `want ${names.join(', ')}`)}`)
    }
    const entries = Object.entries(fields).flatMap(([name, field]) => {
      const own = Object.hasOwn(value, name) ? value[name] : undefined
      if (own !== undefined) return [[name, field.read(own, fieldPath(at, name))]]
      return field.isOptional === true ? [] : refuse(fieldPath(at, name), 'missing')
    })
    // The fields have been read by their shapes.
    return Object.fromEntries(entries) as ObjectOf<F>
  }
  const about = description === undefined ? {} : { description }
  return {
    read,
    schema: {
      ...{ type: 'object', ...about, properties, additionalProperties: false },
      ...(required.length === 0 ? {} : { required }),
    },
  }
}

export function optional<T>(shape: Shape<T>): Shape<T | undefined> {
  return { ...shape, isOptional: true }
}

/** An object of any names, whose values have one shape. */
export function record<T>(shape: Shape<T>): Shape<Readonly<Record<string, T>>> {
  return {
    read: (value, at) => {
      if (!isObject(value)) return refuse(at, `${kindOf(value)}, want an object`)
      return Object.fromEntries(
        Object.entries(value).map(([name, item]) => [name, shape.read(item, fieldPath(at, name))]),
      )
    },
    schema: { type: 'object', additionalProperties: shape.schema },
  }
}

export function list<T>(shape: Shape<T>, most: number): Shape<readonly T[]> {
  return {
    read: (value, at) => {
      if (!Array.isArray(value)) return refuse(at, `${kindOf(value)}, want a list`)
      if (value.length > most) refuse(at, `${value.length} items, want at most ${most}`)
      return value.map((item, index) => shape.read(item, `${at}[${index}]`))
    },
    schema: { type: 'array', items: shape.schema, maxItems: most },
  }
}

export function integer(least: number, most: number, what = 'a whole number'): Shape<number> {
  return {
    read: (value, at) => {
      if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most)
        return value
      return refuse(at, `${kindOf(value)}, want ${what}, ${least} to ${most}`)
    },
    schema: { type: 'integer', minimum: least, maximum: most },
  }
}

export const boolean: Shape<boolean> = {
  read: (value, at) =>
    typeof value === 'boolean' ? value : refuse(at, `${kindOf(value)}, want true or false`),
  schema: { type: 'boolean' },
}

/** A text that the pattern matches as a whole. */
export function text(pattern: RegExp, want: string): Shape<string> {
  return {
    read: (value, at) => {
      if (typeof value === 'string' && pattern.test(value)) return value
      const hint = typeof value === 'number' ? ': put it in quotes' : ''
      return refuse(at, `${kindOf(value)}, want ${want}${hint}`)
    },
    schema: { type: 'string', pattern: pattern.source },
  }
}

export function oneOf<const Words extends readonly string[]>(words: Words): Shape<Words[number]> {
  return {
    read: (value, at) => {
      const found = words.find((word) => word === value)
      if (found !== undefined) return found
      const otherwise = `want ${words.join(', ')}`
      const hint = typeof value === 'string' ? didYouMean(value, words, otherwise) : `, ${otherwise}`
      return refuse(at, `${kindOf(value)}${hint}`)
    },
    schema: { enum: words },
  }
}

/** A short form besides the full one, which is an object or a list. */
export function either<Short, Full>(
  short: Shape<Short>,
  full: Shape<Full>,
  lengthen: (value: Short, at: string) => Full,
): Shape<Full> {
  return {
    read: (value, at) => {
      if (typeof value === 'object' && value !== null) return full.read(value, at)
      return lengthen(short.read(value, at), at)
    },
    schema: { anyOf: [short.schema, full.schema] },
  }
}

/** What this version knows of and cannot give: refused with the reason. */
export function notBuilt(what: string): Shape<undefined> {
  return {
    read: (_, at) => refuse(at, `not built yet: ${what}`),
    schema: { not: {}, description: `Not built yet: ${what}.` },
    isOptional: true,
  }
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function fieldPath(at: string, name: string): string {
  if (!/^[\w-]+$/.test(name)) return `${at}[${shown(name)}]`
  return at === '' ? name : `${at}.${name}`
}

/** A value for a message: a scalar itself, else what it is. */
function kindOf(value: unknown): string {
  if (typeof value === 'string') return shown(value)
  if (value === null) return 'empty'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : String(value)
}
