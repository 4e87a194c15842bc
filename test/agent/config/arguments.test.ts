import { describe, expect, it } from 'vitest'
import { parseArguments } from '../../../src/agent/config/arguments.ts'

const VMINIT = ['--channel', '3', '--restarts', '2', '--stored-list', '4', '--broker', '5']

describe('parseArguments', () => {
  it('reads the arguments of vminit, and that the agent has to boot a guest', () => {
    const given = {
      channel: { fd: 3, restarts: 2, storedList: 4 },
      ...{ broker: 5, init: false, configFile: undefined, serverAddress: undefined },
    }
    expect(parseArguments(VMINIT)).toEqual(given)
    expect(parseArguments([...VMINIT, '--init'])).toEqual({ ...given, init: true })
  })

  it('reads the address to serve at', () => {
    const given = parseArguments(['--server-addr', 'unix:///run/a', ...VMINIT])
    expect(given).toMatchObject({ serverAddress: 'unix:///run/a' })
  })

  it.each([
    [['--version'], 'version'],
    [['-v'], 'version'],
    [['--print-state'], 'state'],
  ])('needs no vminit for %j', (argv, print) => {
    expect(parseArguments(argv)).toEqual({ print })
  })

  it.each([[], ['--server-addr', 'unix:///run/a'], ['--init'], VMINIT.slice(0, -2)])(
    'refuses to serve without vminit: %j',
    (...argv) => {
      expect(() => parseArguments(argv)).toThrow('not started by vminit, want `vminit -- agent …`')
    },
  )

  it.each([
    [['--verbose'], 'unknown argument --verbose'],
    [['toString'], 'unknown argument toString'],
    [['--stored-list', 'x'], '--stored-list x: not a whole number'],
    [['--', '--init'], 'unknown argument --'],
    [['--toString'], 'unknown argument --toString'],
    [['--init=yes'], '--init takes no value'],
    [['--config'], '--config needs a value'],
    [['-c', ''], '-c needs a value'],
    [['--channel', 'three'], '--channel three: not a whole number'],
    [['--broker', '-'], '--broker -: not a whole number'],
    [['--restarts', '-1'], '--restarts -1: not a whole number'],
  ])('refuses %j', (argv, message) => {
    expect(() => parseArguments(argv)).toThrow(message)
  })
})
