import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { GENERATED_PAGES, pathOfPage } from '../../scripts/reference/pages.ts'

describe('npm run gen', () => {
  it.each(Object.entries(GENERATED_PAGES))('makes docs/%s as it is', async (name, make) => {
    const page = readFileSync(pathOfPage(name), 'utf8')
    expect(await make(page)).toBe(page)
  })
})
