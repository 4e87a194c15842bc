import { getSystemErrorMap } from 'node:util'
import { messageOf } from '../../base/errors.ts'

/** Describes a failed file operation by path and reason, because Node's text does not always name the file. */
export function fileFailure(path: string, error: unknown): string {
  const errno = error instanceof Error && 'errno' in error ? error.errno : undefined
  const text = typeof errno === 'number' ? getSystemErrorMap().get(errno)?.[1] : undefined
  return text === undefined ? messageOf(error) : `${path}: ${text}`
}
