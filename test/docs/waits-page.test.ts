import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const page = readFileSync(join(ROOT, 'docs/reference/waits.md'), 'utf8')
const rows = page
  .split('\n')
  .flatMap((line) => [...line.matchAll(/^\|.*`(src\/\S+\.ts)` ([A-Z_]+) \|(.*›.*)$/g)])
  .map(([, file = '', name = '', shown = '']) => ({ constant: `${file} ${name}`, shown }))

describe('docs/reference/waits.md', () => {
  it.each(rows)('names an existing test of $constant', ({ shown }) => {
    const [, file = '', name = ''] = /`(test\/\S+)` › (.*?) *\|/.exec(shown) ?? []
    expect(name).not.toBe('')
    expect(readFileSync(join(ROOT, file), 'utf8')).toContain(name)
  })
})
