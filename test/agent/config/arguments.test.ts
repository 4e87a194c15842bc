import { describe, expect, it } from 'vitest'
import { parseArguments } from '../../../src/agent/config/arguments.ts'

describe('parseArguments', () => {
  it('needs no arguments', () => {
    expect(parseArguments([])).toEqual({
      channel: undefined,
      broker: undefined,
      init: false,
      configFile: undefined,
      serverAddress: undefined,
      version: false,
      printState: false,
    })
  })

  it('reads the arguments of vminit in a guest', () => {
    expect(parseArguments(['--channel', '3', '--restarts', '2', '--broker', '4', '--init'])).toMatchObject({
      channel: { fd: 3, restarts: 2 },
      broker: 4,
      init: true,
    })
  })

  it('reads where the list of stored descriptors is', () => {
    const argv = ['--channel', '3', '--restarts', '1', '--stored-list', '4']
    expect(parseArguments(argv).channel).toEqual({ fd: 3, restarts: 1, storedList: 4 })
  })

  it('reads the address to serve at', () => {
    expect(parseArguments(['--server-addr', 'unix:///run/a']).serverAddress).toBe('unix:///run/a')
  })

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
