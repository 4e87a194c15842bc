import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { securityPage } from '../../scripts/security-page.ts'

const PAGE = join(import.meta.dirname, '../../docs/security.md')

describe('docs/security.md', () => {
  it('has the table of advisories that npm run gen makes of the list', () => {
    const page = readFileSync(PAGE, 'utf8')
    expect(page).toBe(securityPage(page))
  })
})
