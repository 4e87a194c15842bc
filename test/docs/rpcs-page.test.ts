import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { rpcsPage } from '../../scripts/rpcs-page.ts'

const PAGE = join(import.meta.dirname, '../../docs/rpcs.md')

describe('docs/rpcs.md', () => {
  it('has the table that npm run gen makes of the declarations', async () => {
    const page = readFileSync(PAGE, 'utf8')
    expect(page).toBe(await rpcsPage(page))
  })
})
