import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { attackTable } from '../../../scripts/test/attack-figures.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('attackTable', () => {
  it('has a row for each line that the tests wrote', () => {
    const file = join(temporaryFolder(), 'figures')
    const row = { where: 'host', checks: 12, p50Ms: 0.52, p99Ms: 12.31, maxMs: 40, peakMib: 71.6, left: 0 }
    writeFileSync(
      file,
      ['fork bomb', 'flood'].map((attack) => `${JSON.stringify({ attack, ...row })}\n`).join(''),
    )
    expect(attackTable(file)).toEqual([
      'Health.Check during attacks, in ms:',
      '    attack         where    checks       p50       p99       max   RSS MiB      left',
      '    fork bomb       host        12       0.5      12.3      40.0        72         0',
      '    flood           host        12       0.5      12.3      40.0        72         0',
    ])
  })

  it('is empty without a file', () => {
    expect(attackTable(join(temporaryFolder(), 'none'))).toEqual([])
  })
})
