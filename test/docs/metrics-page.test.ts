import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { metricsPage } from '../../scripts/metrics-page.ts'

describe('docs/metrics.md', () => {
  it('is what npm run gen makes of the table', () => {
    expect(readFileSync(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8')).toBe(metricsPage())
  })
})
