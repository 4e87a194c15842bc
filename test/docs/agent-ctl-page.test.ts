import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { COMMANDS } from '../../src/ctl/commands/table.ts'
import { withReference } from '../../src/ctl/help/reference-page.ts'

const PAGE = join(import.meta.dirname, '../../docs/agent-ctl.md')

describe('docs/agent-ctl.md', () => {
  it('has the commands of the table (npm run gen)', () => {
    const text = readFileSync(PAGE, 'utf8')
    expect(withReference(text, COMMANDS)).toBe(text)
  })
})
