import { getSystemErrorName } from 'node:util'
import { AgentError, errnoOf, messageOf } from '../base/errors.ts'

/** The error of a failed system call: `mount /run/x: EBUSY`. `subject` is the path, fd or pid of the call. */
export function kernelError(call: string, subject: string, errno: string, cause?: unknown): AgentError {
  return new AgentError('INTERNAL', `${call} ${subject}: ${errno}`, { cause, errno })
}

/** The {@link kernelError} for an error of Node's modules. */
export function fromNodeError(call: string, subject: string, error: unknown): AgentError {
  return kernelError(call, subject, errnoOf(error) ?? messageOf(error), error)
}

/** A handler for a rejection of Node's modules: throws its {@link kernelError}. */
export function failed(call: string, subject: string): (error: unknown) => never {
  return (error) => {
    throw fromNodeError(call, subject, error)
  }
}

export function tooLong(path: string, maxBytes: number): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', `read ${path}: EFBIG: more than ${maxBytes} bytes`, {
    errno: 'EFBIG',
  })
}

export function tooManyNames(path: string, maxNames: number): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', `list ${path}: EFBIG: more than ${maxNames} names`, {
    errno: 'EFBIG',
  })
}

/** Returns the result of an addon function. Throws {@link kernelError} when the result is -errno. */
export function checkErrno(call: string, subject: string, result: number): number {
  if (result < 0) throw kernelError(call, subject, errnoName(-result))
  return result
}

/** {@link checkErrno} for addon functions whose value is not a number. */
export function unwrap<T extends object>(call: string, subject: string, result: T | number): T {
  if (typeof result === 'number') throw kernelError(call, subject, errnoName(-result))
  return result
}

/** The name of an errno: `EBUSY` for 16. */
export function errnoName(errno: number): string {
  const known = names.get(errno)
  if (known !== undefined) return known
  const name = getSystemErrorName(-errno)
  names.set(errno, name)
  return name
}

/** A cache, because Node rebuilds its table for each look-up, and EAGAIN ends every series of reads. */
const names = new Map<number, string>()
