import { fstatSync, writeFileSync } from 'node:fs'
import { checkErrno } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from './streams.ts'

const STDOUT = 1

/** Writes all of the text to stdout before it returns. */
export function writeOut(text: string): void {
  writeFileSync(STDOUT, text)
}

/** Returns stdout. A pipe or socket does not block then; a terminal or file stays as it is, for others have it, too. */
export function unblockedStdout(native: Pick<Native, 'setNonBlocking'>): Fd {
  const kind = fstatSync(STDOUT)
  if (kind.isFIFO() || kind.isSocket()) checkErrno('unblock', 'stdout', native.setNonBlocking(STDOUT, true))
  return STDOUT
}
