import { AgentError } from '../../base/errors.ts'

/** The user has typed the detach keys; the process continues without the tool. */
export class Detached extends Error {}

/** The default of docker. */
export const DETACH_KEYS = 'ctrl-p,ctrl-q'

/** The bytes of keys such as `ctrl-p,ctrl-q` or `ctrl-a,d`. Throws INVALID_ARGUMENT. */
export function parseKeys(text: string): Buffer {
  if (text === '') return Buffer.alloc(0)
  const bytes = text.split(',').map((key) => {
    const [, letter] = /^ctrl-([a-z@[\\\]^_])$/.exec(key) ?? []
    if (letter !== undefined) return letter.toUpperCase().charCodeAt(0) & 0x1f
    if (/^[\x20-\x7e]$/.test(key)) return key.charCodeAt(0)
    throw new AgentError(
      'INVALID_ARGUMENT',
      `keys ${JSON.stringify(text)}: unknown key "${key}", want ctrl-p or a letter`,
    )
  })
  return Buffer.from(bytes)
}

/** Passes bytes on until the keys are typed, then throws {@link Detached}. Holds back a partial match. */
export async function* untilKeys(
  pieces: AsyncIterable<Buffer>,
  keys: Buffer,
): AsyncGenerator<Buffer, void, undefined> {
  let matched = 0
  for await (const piece of pieces) {
    const passed: number[] = []
    for (const byte of piece) {
      if (byte === keys[matched]) {
        matched += 1
        if (matched === keys.length) {
          if (passed.length > 0) yield Buffer.from(passed)
          throw new Detached('detached')
        }
        continue
      }
      passed.push(...keys.subarray(0, matched))
      matched = byte === keys[0] ? 1 : 0
      if (matched === 0) passed.push(byte)
    }
    if (passed.length > 0) yield Buffer.from(passed)
  }
  if (matched > 0) yield keys.subarray(0, matched)
}
