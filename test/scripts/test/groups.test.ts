import { describe, expect, it } from 'vitest'
import { GROUPS, LANES, LAST_GROUPS, readSelection } from '../../../scripts/test/groups.ts'

describe('the lanes', () => {
  it('have each group once, with those that the lanes share', () => {
    expect([...LANES.flat(), ...LAST_GROUPS].toSorted()).toEqual(GROUPS.toSorted())
  })
})

describe('readSelection', () => {
  it('selects everything without arguments', () => {
    expect(readSelection([])).toEqual({ groups: GROUPS, patterns: [], times: 1 })
  })

  it('keeps the order of the groups, whatever the order of the options', () => {
    expect(readSelection(['--group', 'vm', '--group=unit'])).toMatchObject({ groups: ['unit', 'vm'] })
  })

  it('skips the checks when a pattern is given', () => {
    expect(readSelection(['ttrpc'])).toMatchObject({
      groups: ['unit', 'host', 'hostile', 'fuzz', 'kills', 'vm'],
      patterns: ['ttrpc'],
    })
  })

  it('takes how often the tests run', () => {
    expect(readSelection(['--group', 'hostile', '--times', '20'])).toMatchObject({
      groups: ['hostile'],
      times: 20,
    })
    expect(readSelection(['--times=3'])).toMatchObject({ groups: GROUPS, times: 3 })
  })

  it.each([
    [['--group', 'units'], '--group units: the groups are check, unit, host, hostile, fuzz, kills, vm'],
    [['--group'], '--group : the groups are check, unit, host, hostile, fuzz, kills, vm'],
    [['--fast'], 'unknown option --fast: want --group NAME or --times N'],
    [['--times', '0'], '--times 0: want a number from 1 to 9999'],
    [['--times'], '--times : want a number from 1 to 9999'],
  ])('refuses %j', (args, sentence) => {
    expect(() => readSelection(args)).toThrow(sentence)
  })
})
