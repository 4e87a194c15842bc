import { AgentError } from '../../base/errors.ts'

/** A number of a request. Throws INVALID_ARGUMENT, naming the field, when it is too large. */
export function numberUpTo(field: string, value: number, most: number): number {
  if (value <= most) return value
  throw new AgentError('INVALID_ARGUMENT', `${field}: ${value}, want at most ${most}`)
}

/** The longest measurement. */
const LONGEST_MS = 60_000

const DEFAULT_MS = 1000

/** For how long a call measures, in milliseconds. Throws INVALID_ARGUMENT for a time that is too long. */
export function durationOf(durationMs: number): number {
  return numberUpTo('duration_ms', durationMs, LONGEST_MS) || DEFAULT_MS
}
