import { AgentError, messageOf } from '../../../base/errors.ts'

/** Result codes of SQLite (https://sqlite.org/rescode.html). */
const CODES = { ERROR: 1, BUSY: 5, READONLY: 8, CORRUPT: 11, FULL: 13, NOTADB: 26 } as const

/** With these an SQL statement that is right fails on a file that is wrong. */
const DAMAGED: readonly number[] = [CODES.ERROR, CODES.READONLY, CODES.CORRUPT, CODES.NOTADB]
/** An extended code: a page is cut. */
const SHORT_READ = 522

export function isBusy(error: unknown): boolean {
  return primaryCode(error) === CODES.BUSY
}

export function isFull(error: unknown): boolean {
  return primaryCode(error) === CODES.FULL
}

/** The AgentError for a failure of node:sqlite on the file `path`. */
export function sqliteFailure(path: string, error: unknown): AgentError {
  if (error instanceof AgentError) return error
  const text = `${path}: ${messageOf(error)}`
  if (!isFull(error)) return new AgentError('INTERNAL', text, { cause: error })
  return new AgentError('RESOURCE_EXHAUSTED', text, { cause: error, errno: 'ENOSPC' })
}

/** As {@link sqliteFailure}, at the start, when the file itself may be wrong. */
export function startFailure(path: string, error: unknown): AgentError {
  const isDamaged = DAMAGED.includes(primaryCode(error)) || codeOf(error) === SHORT_READ
  return isDamaged ? damaged(path, messageOf(error)) : sqliteFailure(path, error)
}

export function damaged(path: string, what: string): AgentError {
  return new AgentError(
    'FAILED_PRECONDITION',
    `${path}: damaged (${what}), want the daemon started with --rebuild`,
  )
}

function primaryCode(error: unknown): number {
  return codeOf(error) & 0xff
}

/** 0 for an error that is not of SQLite. */
function codeOf(error: unknown): number {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode : 0
}
