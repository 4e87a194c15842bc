import { AgentError } from '../../base/errors.ts'

/** The largest user id, group id or device number. */
const HIGHEST_ID = 2 ** 32 - 1

/**
 * The fields of a mapping in a file that is not trusted, of these names alone; none for what is absent. `where` is its
 * place in the file, empty for the top. Like all functions here it throws INTERNAL, naming the place, for what is wrong.
 */
export function fieldsOf<Name extends string>(
  value: unknown,
  where: string,
  names: readonly Name[],
): { readonly [Key in Name]?: unknown } {
  if (isAbsent(value)) return {}
  const place = where === '' ? 'it' : where
  if (typeof value !== 'object' || Array.isArray(value)) throw wrong(place, 'a mapping', value)
  const fields: { [Key in Name]?: unknown } = {}
  for (const [key, field] of Object.entries(value)) {
    const name = names.find((candidate) => candidate === key)
    if (name === undefined)
      throw malformed(`${place} has a field ${JSON.stringify(key)}, which is not known here`)
    fields[name] = field
  }
  return fields
}

/** The items of a list, each as `read` has it; none for what is absent. */
export function listOf<T>(
  value: unknown,
  where: string,
  read: (item: unknown, where: string) => T,
): readonly T[] {
  if (isAbsent(value)) return []
  if (!Array.isArray(value)) throw wrong(where, 'a list', value)
  return value.map((item: unknown, index) => read(item, `${where}[${index}]`))
}

/** A text that must be there. */
export function textOf(value: unknown, where: string): string {
  const text = anyTextOf(value, where)
  if (text === '') throw malformed(`${where} is empty`)
  return text
}

/** A text that must be there, and may be empty. */
export function anyTextOf(value: unknown, where: string): string {
  if (typeof value !== 'string') throw wrong(where, 'a text', value)
  if (value.includes('\0')) throw malformed(`${where} has a NUL in it`)
  return value
}

/** A number from 0 that must be there: an id, a mode, seconds. */
export function numberOf(value: unknown, where: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value)) throw wrong(where, 'a whole number', value)
  if (value < 0 || value > HIGHEST_ID)
    throw malformed(`${where}: ${value} is not between 0 and ${HIGHEST_ID}`)
  return value
}

/** An absolute path that leads nowhere but where it says. */
export function pathOf(value: unknown, where: string): string {
  const path = textOf(value, where)
  if (path.startsWith('/') && !path.split('/').includes('..')) return path
  throw malformed(`${where}: '${path}' is not an absolute path without ..`)
}

/** What `read` makes of it, or undefined for what is absent. */
export function optional<T>(
  value: unknown,
  where: string,
  read: (value: unknown, where: string) => T,
): T | undefined {
  return isAbsent(value) ? undefined : read(value, where)
}

/** The error for a place that says something that cannot be. */
export function malformed(text: string): AgentError {
  return new AgentError('INTERNAL', text)
}

function wrong(where: string, wanted: string, value: unknown): AgentError {
  if (isAbsent(value)) return malformed(`${where} is missing`)
  return malformed(
    `${where} is no ${wanted.replace(/^an? /, '')}, but a ${Array.isArray(value) ? 'list' : typeof value}`,
  )
}

function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null
}
