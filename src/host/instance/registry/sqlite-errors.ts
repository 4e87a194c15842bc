import { AgentError, messageOf } from '../../../base/errors.ts'

/** Result codes of SQLite (https://sqlite.org/rescode.html). */
const CODES = { ERROR: 1, BUSY: 5, READONLY: 8, CORRUPT: 11, FULL: 13, CANTOPEN: 14, NOTADB: 26 } as const

/** With these an SQL statement that is right fails on a file that is wrong. */
const DAMAGED: readonly number[] = [CODES.ERROR, CODES.READONLY, CODES.CORRUPT, CODES.NOTADB]

export function isBusy(error: unknown): boolean {
  return codeOf(error) === CODES.BUSY
}

/** The AgentError for a failure of node:sqlite on the file `path`. */
export function sqliteFailure(path: string, error: unknown): AgentError {
  if (error instanceof AgentError) return error
  const code = codeOf(error)
  const text = `${path}: ${messageOf(error)}`
  if (code === CODES.FULL)
    return new AgentError('RESOURCE_EXHAUSTED', text, { cause: error, errno: 'ENOSPC' })
  return new AgentError('INTERNAL', text, { cause: error })
}

/** As {@link sqliteFailure}, at the start, when the file itself may be wrong. */
export function startFailure(path: string, error: unknown): AgentError {
  const code = codeOf(error)
  return code !== undefined && DAMAGED.includes(code)
    ? damaged(path, messageOf(error))
    : sqliteFailure(path, error)
}

export function damaged(path: string, what: string): AgentError {
  return new AgentError(
    'FAILED_PRECONDITION',
    `${path}: damaged (${what}), want the daemon started with --rebuild`,
  )
}

/** The primary result code. */
function codeOf(error: unknown): number | undefined {
  if (!(error instanceof Error && 'errcode' in error && typeof error.errcode === 'number')) return undefined
  return error.errcode & 0xff
}
