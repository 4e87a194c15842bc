import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

/** Phrases that stop a reader, and their replacements. */
const BANNED: readonly (readonly [phrase: RegExp, better: string])[] = [
  [/\bagents? before(?: this one)?\b(?! it| the| an?\b)/i, 'the previous agent'],
  [/\bagent of the time before\b/i, 'the previous agent'],
  [/\bfor want of\b/i, 'because … ran out, without'],
  [/\bwhom\b/i, 'name the person or program'],
  [/\bin vain\b/i, 'without success'],
  [/\bgone on with\b/i, 'restored'],
  [/\bnone any more\b/i, 'name the state: removed, destroyed'],
  [/\bbehaviou?r spec\b|\bspec [A-I]\.\d/i, 'a man page, a file of the kernel, an RFC or a page of docs/'],
]

const FILES = globSync(
  ['{src,native,scripts,bench,test,proto}/**/*.{ts,mjs,cjs,c,h,proto}', '*.md', 'docs/**/*.md'],
  {
    cwd: ROOT,
  },
).filter((file) => !file.startsWith('src/gen/') && file !== 'test/docs/prose.test.ts')

describe('the prose of the repository', () => {
  it.each(BANNED)('does not say %s', (phrase, better) => {
    const found = FILES.flatMap((file) =>
      readFileSync(join(ROOT, file), 'utf8')
        .split('\n')
        .flatMap((line, index) => (phrase.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])),
    )
    expect(found, `write instead: ${better}`).toEqual([])
  })
})
