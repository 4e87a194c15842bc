import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { judgeCoverage, readCoverage } from '../../../scripts/test/coverage.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('readCoverage', () => {
  let reports = ''
  beforeEach(() => {
    reports = temporaryFolder()
  })

  it('sums the lines of each folder, of each folder of handlers apart', () => {
    const lines = (total: number, covered: number) => ({ lines: { total, covered } })
    const summary = {
      total: lines(100, 100),
      '/root/src/rpc/ttrpc/frame.ts': lines(10, 10),
      '/root/src/rpc/client.ts': lines(10, 5),
      '/root/src/handlers/storage/local.ts': lines(4, 1),
      '/root/src/handlers/guest/clock.ts': lines(3, 3),
    }
    writeFileSync(join(reports, 'coverage-summary.json'), JSON.stringify(summary))
    expect(readCoverage('/root', reports)).toEqual([
      { folder: 'src/handlers/guest', lines: 3, covered: 3 },
      { folder: 'src/handlers/storage', lines: 4, covered: 1 },
      { folder: 'src/rpc', lines: 20, covered: 15 },
    ])
  })

  it('is empty when nothing was measured', () => {
    expect(readCoverage('/root', reports)).toEqual([])
  })
})

describe('judgeCoverage', () => {
  const folders = [{ folder: 'src/rpc', lines: 20, covered: 15 }]

  it('passes at the floor', () => {
    expect(judgeCoverage(folders, { 'src/rpc': 75 })).toEqual({
      ok: true,
      lines: ['ok   coverage: src/rpc                   75.0 % of 20 lines, floor 75'],
    })
  })

  it.each([
    ['a folder below its floor', { 'src/rpc': 76 }, 'FAIL coverage: src/rpc .* 75.0 % of 20 lines, floor 76'],
    ['a folder without a floor', {}, 'FAIL coverage: src/rpc .* no floor'],
    ['a floor without its folder', { 'src/rpc': 75, 'src/old': 75 }, 'FAIL coverage: src/old: has a floor'],
  ])('fails for %s', (_name, floors, line) => {
    const judged = judgeCoverage(folders, floors)
    expect(judged.ok).toBe(false)
    expect(judged.lines.join('\n')).toMatch(new RegExp(line))
  })
})
