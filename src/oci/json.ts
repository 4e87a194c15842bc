/** A value that {@link printJson} can print. Members that are undefined are left out. */
export type Json =
  | string
  | number
  | bigint
  | boolean
  | readonly Json[]
  | { readonly [key: string]: Json | undefined }

/**
 * JSON text in which 64-bit numbers stand unquoted and in full. (JSON.stringify refuses bigints, and as plain
 * numbers they lose digits above 2^53, such as RLIM_INFINITY.)
 */
export function printJson(value: Json): string {
  if (typeof value === 'bigint') return value.toString()
  if (isList(value)) return `[${value.map(printJson).join(',')}]`
  if (typeof value !== 'object') return JSON.stringify(value)
  const members = Object.entries(value).flatMap(([key, member]) =>
    member === undefined ? [] : [`${JSON.stringify(key)}:${printJson(member)}`],
  )
  return `{${members.join(',')}}`
}

/**
 * The object without its empty members: undefined, 0, '', false, [] and {}. Proto3 cannot tell them from absent
 * ones, and to an OCI runtime absent means "not asked for". A member for which 0 says something is added after.
 */
export function omitEmpty(members: { readonly [key: string]: Json | undefined }): { [key: string]: Json } {
  const kept: { [key: string]: Json } = {}
  for (const [key, value] of Object.entries(members)) {
    if (value === undefined || isEmpty(value)) continue
    kept[key] = value
  }
  return kept
}

function isEmpty(value: Json): boolean {
  if (isList(value)) return value.length === 0
  if (typeof value === 'object') return Object.keys(value).length === 0
  return !value
}

/** Array.isArray does not narrow read-only arrays. */
function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value)
}
