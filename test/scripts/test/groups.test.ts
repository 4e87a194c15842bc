import { describe, expect, it } from 'vitest'
import { GROUPS, readSelection } from '../../../scripts/test/groups.ts'

describe('readSelection', () => {
  it('selects everything without arguments', () => {
    expect(readSelection([])).toEqual({ groups: GROUPS, patterns: [] })
  })

  it('keeps the order of the groups, whatever the order of the options', () => {
    expect(readSelection(['--group', 'vm', '--group=unit'])).toEqual({ groups: ['unit', 'vm'], patterns: [] })
  })

  it('skips the checks when a pattern is given', () => {
    expect(readSelection(['ttrpc'])).toEqual({
      groups: ['unit', 'host', 'hostile', 'vm'],
      patterns: ['ttrpc'],
    })
  })

  it.each([
    [['--group', 'units'], '--group units: the groups are check, unit, host, hostile, vm'],
    [['--group'], '--group : the groups are check, unit, host, hostile, vm'],
    [['--fast'], 'unknown option --fast: only --group NAME is known'],
  ])('refuses %j', (args, sentence) => {
    expect(() => readSelection(args)).toThrow(sentence)
  })
})
