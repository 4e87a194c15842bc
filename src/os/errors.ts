import { getSystemErrorName } from 'node:util'
import { AgentError, errnoOf, messageOf } from '../base/errors.ts'

/** The failure of a system call: `mount /run/x: EBUSY`. `subject` is the path, fd or pid it was about. */
export function kernelError(call: string, subject: string, errno: string, cause?: unknown): AgentError {
  return new AgentError('INTERNAL', `${call} ${subject}: ${errno}`, { cause, errno })
}

/** Converts what a function of `node:fs` and its like threw into a {@link kernelError}. */
export function fromNodeError(call: string, subject: string, error: unknown): AgentError {
  return kernelError(call, subject, errnoOf(error) ?? messageOf(error), error)
}

/** The value of an addon function, which answers failures with -errno; throws {@link kernelError} for those. */
export function checkErrno(call: string, subject: string, result: number): number {
  if (result < 0) throw kernelError(call, subject, errnoName(-result))
  return result
}

/** Like {@link checkErrno} for addon functions whose value is not a number. */
export function unwrap<T extends object>(call: string, subject: string, result: T | number): T {
  if (typeof result === 'number') throw kernelError(call, subject, errnoName(-result))
  return result
}

/** `EBUSY` for 16. */
export function errnoName(errno: number): string {
  const known = names.get(errno)
  if (known !== undefined) return known
  const name = getSystemErrorName(-errno)
  names.set(errno, name)
  return name
}

/** Node looks a name up in a table that it makes anew each time, and EAGAIN ends every read of all there is. */
const names = new Map<number, string>()
