import { appendFileSync, writeFileSync } from 'node:fs'
import { messageOf } from '../../base/errors.ts'
import { UsageError } from '../command.ts'

/** Empties a file, which only its owner may read, because requests hold environments. Returns what writes a line into it. */
export function recordingFile(path: string): (line: string) => void {
  const guarded = (write: () => void) => {
    try {
      write()
    } catch (error) {
      throw new UsageError(`recording: ${messageOf(error)}`, { cause: error })
    }
  }
  guarded(() => writeFileSync(path, '', { mode: 0o600 }))
  return (line) => guarded(() => appendFileSync(path, line))
}
