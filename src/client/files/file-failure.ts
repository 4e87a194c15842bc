import { getSystemErrorMap } from 'node:util'
import { messageOf } from '../../base/errors.ts'

/**
 * What is wrong with a file of this machine, such as `/nope: no such file or directory`: Node's own text names the system
 * call, and not always the file. An error without an errno keeps its message.
 */
export function fileFailure(path: string, error: unknown): string {
  const errno = error instanceof Error && 'errno' in error ? error.errno : undefined
  const text = typeof errno === 'number' ? getSystemErrorMap().get(errno)?.[1] : undefined
  return text === undefined ? messageOf(error) : `${path}: ${text}`
}
