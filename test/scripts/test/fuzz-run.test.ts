import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { DEFAULT_CASES, fuzzTable, parseCase, readFuzzRun } from '../../../scripts/test/fuzz-run.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('readFuzzRun', () => {
  it('has the cases of npm test and a random seed without arguments', () => {
    const run = { cases: DEFAULT_CASES, seed: expect.any(Number), replay: undefined, patterns: [] }
    expect(readFuzzRun([])).toEqual(run)
  })

  it('takes cases, seed and patterns', () => {
    const run = { cases: 1_000_000, seed: 3, replay: undefined, patterns: ['ttrpc', 'oci'] }
    expect(readFuzzRun(['--cases', '1000000', 'ttrpc', '--seed', '3', 'oci'])).toEqual(run)
  })

  it('runs the file of a case again', () => {
    const replay = 'ttrpc/frames:-5:3:0:1'
    expect(readFuzzRun(['--replay', replay])).toMatchObject({
      replay,
      patterns: ['test/fuzz/ttrpc.test.ts'],
    })
    expect(parseCase(replay)).toEqual({ target: 'ttrpc/frames', seed: -5, path: '3:0:1' })
  })

  it.each([
    [['--cases', 'many'], '--cases many: want a number from 0 to 1000000000'],
    [['--seed'], '--seed : want a number from 0 to 2147483647'],
    [['--replay', 'ttrpc:1'], '--replay ttrpc:1: want FILE/TARGET:SEED:PATH, as a failure prints it'],
    [['--fast'], 'unknown option --fast: want [--cases N] [--seed N]'],
  ])('refuses %j', (args, sentence) => {
    expect(() => readFuzzRun(args)).toThrow(sentence)
  })
})

describe('fuzzTable', () => {
  it('has a line for each target and one for all', () => {
    const file = join(temporaryFolder(), 'figures')
    expect(fuzzTable(file)).toEqual([])
    const figures = { target: 'ttrpc/frames', cases: 10, seconds: 2, maxMs: 3, residentMib: 4, usedMib: 0.5 }
    writeFileSync(
      file,
      `${JSON.stringify(figures)}\n${JSON.stringify({ ...figures, target: 'oci/specs' })}\n`,
    )
    expect(fuzzTable(file).map((line) => line.trim().replace(/ +/g, ' '))).toEqual([
      'hostile input:',
      'target cases seconds max ms RSS +MiB heap +MiB',
      'ttrpc/frames 10 2.0 3 4 0.5',
      'oci/specs 10 2.0 3 4 0.5',
      'all 20 4.0',
    ])
  })
})
