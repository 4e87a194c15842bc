import { AgentError } from '../../base/errors.ts'

/** Throws INVALID_ARGUMENT with the field when the number is too large. */
export function numberUpTo(field: string, value: number, most: number): number {
  if (value <= most) return value
  throw new AgentError('INVALID_ARGUMENT', `${field}: ${value}, want at most ${most}`)
}

const LONGEST_MS = 60_000

const DEFAULT_MS = 1000

/** 0 means the default. Throws INVALID_ARGUMENT for too long a time. */
export function durationOf(durationMs: number): number {
  return numberUpTo('duration_ms', durationMs, LONGEST_MS) || DEFAULT_MS
}
