/** A value that {@link printJson} can print. Members that are undefined are left out. */
export type Json =
  | string
  | number
  | bigint
  | boolean
  | readonly Json[]
  | { readonly [key: string]: Json | undefined }

declare global {
  interface JSON {
    /** A value that JSON.stringify prints as `text`. Node supports it since 22; TypeScript does not declare it yet. */
    rawJSON(text: string): object
  }
}

/**
 * Returns JSON text in which 64-bit numbers are unquoted and exact. (JSON.stringify alone refuses bigints, and as plain
 * numbers they lose digits above 2^53, such as RLIM_INFINITY.)
 */
export function printJson(value: Json): string {
  return JSON.stringify(value, (_key, member: Json) =>
    typeof member === 'bigint' ? JSON.rawJSON(member.toString()) : member,
  )
}

/** Whether a member holds nothing: 0, '', false, [] or {}. */
export function isEmpty(value: Json): boolean {
  return typeof value === 'object' ? Object.keys(value).length === 0 : !value
}
