import { AgentError } from '../base/errors.ts'

/**
 * Throws INVALID_ARGUMENT, naming `field`, unless `path` is absolute and leads nowhere but where it says: a `..` in it
 * may mean another place to each who resolves it.
 */
export function checkAbsolutePath(field: string, path: string): void {
  if (!path.startsWith('/')) throw invalidField(field, `'${path}' is not an absolute path`)
  checkNoParentPath(field, path)
}

/** Throws INVALID_ARGUMENT, naming `field`, when `path` has a `..` or a NUL character in it. */
export function checkNoParentPath(field: string, path: string): void {
  checkText(field, path)
  if (path.split('/').includes('..')) throw invalidField(field, `'${path}' has '..' in it`)
}

/** Throws INVALID_ARGUMENT, naming `field`, for a NUL character, with which a text ends for the kernel. */
export function checkText(field: string, text: string): void {
  if (text.includes('\0')) throw invalidField(field, 'there is a NUL character in it')
}

/** Throws INVALID_ARGUMENT, naming `field`, for a word that is none of `words`. */
export function checkOneOf(field: string, allowed: readonly string[], value: string): void {
  if (!allowed.includes(value)) throw invalidField(field, `there is no '${value}'`)
}

/** INVALID_ARGUMENT about one field of an OCI spec, by its name in the message. */
export function invalidField(field: string, what: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `${field}: ${what}`)
}
