import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { recoveryPage } from '../../scripts/recovery-page.ts'

const PAGE = join(import.meta.dirname, '../../docs/recovery.md')

describe('docs/recovery.md', () => {
  it('has the table that npm run gen makes of the recovery table', () => {
    const page = readFileSync(PAGE, 'utf8')
    expect(page).toBe(recoveryPage(page))
  })
})
