import { describe, expect, it } from 'vitest'
import { readModelRun } from '../../../scripts/test/model-run.ts'

describe('the arguments of npm run model', () => {
  it('tell how many commands, and the seed', () => {
    expect(readModelRun(['--commands', '100000', '--seed', '7'])).toEqual({ cases: 2_000_000, seed: 7 })
    expect(readModelRun(['--commands', '26']).cases).toBe(1000)
  })

  it.each([
    [[], '--commands: is missing, want --commands N'],
    [['--commands'], '--commands : want a number from 0 to 1000000000'],
    [['ttrpc'], 'unknown option ttrpc: want [--commands N] [--seed N]'],
  ])('%j is refused', (args, text) => {
    expect(() => readModelRun(args)).toThrow(text)
  })
})
