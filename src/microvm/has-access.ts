import { accessSync } from 'node:fs'

/** Whether this process may use the file at `path` as `mode` says (`constants.R_OK` …). False when there is none. */
export function hasAccess(path: string, mode: number): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}
