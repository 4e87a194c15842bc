import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

/** The tests that the page names: file, and a part of the name. */
const named = readFileSync(join(ROOT, 'docs/kata.md'), 'utf8')
  .split('\n')
  .flatMap((line) => [...line.matchAll(/\| `(test\/\S+\.test\.ts)` › (.+?) \|$/g)])
  .map(([, file = '', name = '']) => ({ file, name }))

describe('docs/kata.md', () => {
  it('names a test for each difference', () => {
    expect(named.length).toBeGreaterThan(25)
  })

  it.each(named)('names an existing test: $file › $name', ({ file, name }) => {
    expect(readFileSync(join(ROOT, file), 'utf8')).toContain(name)
  })
})
