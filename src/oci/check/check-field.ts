import { AgentError } from '../../base/errors.ts'

/**
 * Throws INVALID_ARGUMENT, naming `field`, unless `path` is absolute and has no `..`, which different programs may
 * resolve differently.
 */
export function checkAbsolutePath(field: string, path: string): void {
  if (!path.startsWith('/')) throw invalidField(field, `"${path}", want an absolute path`)
  checkNoParentPath(field, path)
}

/** Throws INVALID_ARGUMENT, naming `field`, when `path` has a `..` component or a NUL byte. */
export function checkNoParentPath(field: string, path: string): void {
  checkText(field, path)
  if (path.split('/').includes('..')) throw invalidField(field, `"${path}", want no ".."`)
}

/** Throws INVALID_ARGUMENT, naming `field`, for a text with a NUL byte, at which the kernel would end it. */
export function checkText(field: string, text: string): void {
  if (text.includes('\0')) throw invalidField(field, 'contains a NUL byte')
}

/** Throws INVALID_ARGUMENT, naming `field`, for a value that is not one of `allowed`. */
export function checkOneOf(field: string, allowed: readonly string[], value: string): void {
  if (!allowed.includes(value)) throw invalidField(field, `unknown value "${value}"`)
}

/** The largest device numbers of the kernel, whose dev_t has 12 bits and 20: a larger number would lose its upper bits. */
export const LARGEST_MAJOR = 4095
export const LARGEST_MINOR = 1_048_575

/** Throws INVALID_ARGUMENT, naming the field below `field`, for a device number that the kernel cannot have. */
export function checkDeviceNumbers(
  field: string,
  { Major: major, Minor: minor }: { readonly Major: bigint; readonly Minor: bigint },
  smallest = 0n,
): void {
  checkNumber(`${field}.major`, major, smallest, LARGEST_MAJOR)
  checkNumber(`${field}.minor`, minor, smallest, LARGEST_MINOR)
}

function checkNumber(field: string, number: bigint, smallest: bigint, largest: number): void {
  if (number < smallest || number > largest)
    throw invalidField(field, `${number}, want ${smallest} to ${largest}`)
}

export function invalidField(field: string, what: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `${field}: ${what}`)
}
