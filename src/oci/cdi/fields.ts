import { AgentError } from '../../base/errors.ts'

/** The largest user id, group id or device number. */
const HIGHEST_ID = 2 ** 32 - 1

/**
 * The fields of a mapping in an untrusted file; empty when the mapping is absent. `where` is its place in the file, empty
 * for the top. Throws INTERNAL, naming the place, for an unknown field or another kind of value, like all functions here.
 */
export function fieldsOf<Name extends string>(
  value: unknown,
  where: string,
  names: readonly Name[],
): { readonly [Key in Name]?: unknown } {
  if (isAbsent(value)) return {}
  const place = where === '' ? 'specification' : where
  if (typeof value !== 'object' || Array.isArray(value)) throw wrong(place, 'a mapping', value)
  const fields: { [Key in Name]?: unknown } = {}
  for (const [key, field] of Object.entries(value)) {
    const name = names.find((candidate) => candidate === key)
    if (name === undefined) throw malformed(`${place}: unknown field ${JSON.stringify(key)}`)
    fields[name] = field
  }
  return fields
}

/** The items of a list, each converted by `read`; empty when the list is absent. */
export function listOf<T>(
  value: unknown,
  where: string,
  read: (item: unknown, where: string) => T,
): readonly T[] {
  if (isAbsent(value)) return []
  if (!Array.isArray(value)) throw wrong(where, 'a list', value)
  return value.map((item: unknown, index) => read(item, `${where}[${index}]`))
}

/** A required text that is not empty. */
export function textOf(value: unknown, where: string): string {
  const text = anyTextOf(value, where)
  if (text === '') throw malformed(`${where}: empty`)
  return text
}

export function anyTextOf(value: unknown, where: string): string {
  if (typeof value !== 'string') throw wrong(where, 'a text', value)
  if (value.includes('\0')) throw malformed(`${where}: contains a NUL byte`)
  return value
}

export function numberOf(value: unknown, where: string, largest = HIGHEST_ID): number {
  if (typeof value !== 'number') throw wrong(where, 'a whole number', value)
  if (!Number.isInteger(value)) throw malformed(`${where}: ${value}, want a whole number`)
  if (value < 0 || value > largest) throw malformed(`${where}: ${value}, want 0 to ${largest}`)
  return value
}

/** A required absolute path without `..`. */
export function pathOf(value: unknown, where: string): string {
  const path = textOf(value, where)
  if (path.startsWith('/') && !path.split('/').includes('..')) return path
  throw malformed(`${where}: "${path}", want an absolute path without ".."`)
}

/** The value converted by `read`; undefined when it is absent. */
export function optional<T>(
  value: unknown,
  where: string,
  read: (value: unknown, where: string) => T,
): T | undefined {
  return isAbsent(value) ? undefined : read(value, where)
}

export function malformed(text: string): AgentError {
  return new AgentError('INTERNAL', text)
}

function wrong(where: string, wanted: string, value: unknown): AgentError {
  if (isAbsent(value)) return malformed(`${where}: missing`)
  return malformed(`${where}: ${Array.isArray(value) ? 'list' : typeof value}, want ${wanted}`)
}

function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null
}
