import { AgentError } from '../../../base/errors.ts'
import type { Change } from './registry.ts'

export const MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
export const MAX_KEY_BYTES = 1024

/** Throws INVALID_ARGUMENT unless every change fits into a row. */
export function checkChanges(changes: readonly Change[]): void {
  for (const { table, key, payload } of changes) {
    // SQLite would store another text than the one given.
    if (!key.isWellFormed()) throw new AgentError('INVALID_ARGUMENT', `${table}: key is not Unicode text`)
    const keyBytes = Buffer.byteLength(key)
    if (keyBytes > MAX_KEY_BYTES) {
      throw new AgentError(
        'INVALID_ARGUMENT',
        `${table}: key of ${keyBytes} bytes, want at most ${MAX_KEY_BYTES}`,
      )
    }
    if (payload !== undefined && payload.length > MAX_PAYLOAD_BYTES) {
      throw new AgentError(
        'INVALID_ARGUMENT',
        `${table} "${key}": payload of ${payload.length} bytes, want at most ${MAX_PAYLOAD_BYTES}`,
      )
    }
  }
}
