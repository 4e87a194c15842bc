import { writeFileSync } from 'node:fs'

const STDOUT = 1

/** Writes all of the text to stdout before it returns. */
export function writeOut(text: string): void {
  writeFileSync(STDOUT, text)
}
