import { refuse, shown } from './component-path.ts'
import { MAX_PATH_BYTES } from './limits.ts'

/** Throws INVALID_ARGUMENT unless `value` is an absolute path without `..`. Whether links lead elsewhere is not looked at. */
export function checkPath(at: string, value: string, maxBytes = MAX_PATH_BYTES): void {
  if (value === '') refuse(at, 'missing')
  if (/\p{Cc}/u.test(value) || !value.isWellFormed()) refuse(at, `${shown(value)}: has a control character`)
  if (!value.startsWith('/')) refuse(at, `${shown(value)}: want an absolute path`)
  if (value.split('/').includes('..')) refuse(at, `${shown(value)}: has ".."`)
  const bytes = Buffer.byteLength(value)
  if (bytes > maxBytes) refuse(at, `${bytes} bytes, want at most ${maxBytes}`)
}
