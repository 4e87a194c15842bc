import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LIMITS, Totals } from '../../src/rpc/limits.ts'

const page = readFileSync(join(import.meta.dirname, '../../docs/reference/limits.md'), 'utf8')
const number = (value: number) => value.toLocaleString('en-US')

describe('docs/reference/limits.md', () => {
  it.each(new Totals().uses())('has the limit $name', ({ name, limit }) => {
    expect(page).toMatch(new RegExp(`^\\| \`${name}\` \\| ${number(limit)}[ |]`, 'm'))
  })

  it.each(Object.entries(LIMITS.total))('has the reserve of %s', (name, { reserve }) => {
    const [, , , column] =
      page
        .split('\n')
        .find((line) => line.startsWith(`| \`${name}\` |`))
        ?.split('|') ?? []
    expect(column?.trim()).toBe(number(reserve))
  })
})
