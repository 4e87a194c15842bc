import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { DEFAULT_SHARE, killsTable, readKillsRun } from '../../../scripts/test/kills-run.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('readKillsRun', () => {
  it('has the share of npm test and a random seed without arguments', () => {
    expect(readKillsRun([])).toEqual({ ...DEFAULT_SHARE, seed: expect.any(Number), patterns: [] })
  })

  it('leaves out the parts that are not named', () => {
    const run = { kills: 1000, steps: 0, lives: 20, seed: 3, patterns: ['replays'] }
    expect(readKillsRun(['--kills', '1000', 'replays', '--lives', '20', '--seed', '3'])).toEqual(run)
  })

  it.each([
    [['--kills', 'many'], '--kills many: want a number from 0 to 1000000000'],
    [['--seed'], '--seed : want a number from 0 to 2147483647'],
    [['--fast'], 'unknown option --fast: want [--kills N] [--steps N]'],
  ])('refuses %j', (args, sentence) => {
    expect(() => readKillsRun(args)).toThrow(sentence)
  })
})

describe('killsTable', () => {
  it('has a line for each test and one for all', () => {
    const file = join(temporaryFolder(), 'figures')
    expect(killsTable(file)).toEqual([])
    const figures = { what: 'lives of containers', runs: 10, kills: 4, seconds: 2 }
    writeFileSync(file, `${JSON.stringify(figures)}\n${JSON.stringify({ ...figures, what: 'agent-ctl' })}\n`)
    expect(killsTable(file).map((line) => line.trim().replace(/ +/g, ' '))).toEqual([
      'agents killed:',
      'runs kills seconds',
      'lives of containers 10 4 2.0',
      'agent-ctl 10 4 2.0',
      'all 20 8 4.0',
    ])
  })
})
