import { describe, expect, it } from 'vitest'
import { parseArguments } from '../../../src/agent/config/arguments.ts'

describe('parseArguments', () => {
  it('needs no arguments', () => {
    expect(parseArguments([])).toEqual({
      channel: undefined,
      init: false,
      configFile: undefined,
      serverAddress: undefined,
      version: false,
      printState: false,
    })
  })

  it('reads the arguments of vminit in a guest', () => {
    expect(parseArguments(['--channel', '3', '--restarts', '2', '--init'])).toMatchObject({
      channel: { fd: 3, restarts: 2 },
      init: true,
    })
  })

  it('reads the descriptors that vminit has stored', () => {
    const argv = ['--channel', '3', '--restarts', '1', '--stored', 'service-1a=4', '--stored', 'other=5']
    const stored = new Map([
      ['service-1a', 4],
      ['other', 5],
    ])
    expect(parseArguments(argv).channel).toEqual({ fd: 3, restarts: 1, stored })
  })

  it.each([[['--config', '/etc/agent.toml']], [['--config=/etc/agent.toml']], [['-c', '/etc/agent.toml']]])(
    'reads the configuration file from %j',
    (argv) => {
      expect(parseArguments(argv).configFile).toBe('/etc/agent.toml')
    },
  )

  it.each([[['--version']], [['-v']]])('reads %j as a request for the version', (argv) => {
    expect(parseArguments(argv).version).toBe(true)
  })

  it('reads the address to serve at', () => {
    expect(parseArguments(['--server-addr', 'unix:///run/a']).serverAddress).toBe('unix:///run/a')
  })

  it.each([
    [['--verbose'], 'unknown argument --verbose'],
    [['toString'], 'unknown argument toString'],
    [['--stored', 'service'], '--stored service: want NAME=FD'],
    [['--', '--init'], 'unknown argument --'],
    [['--toString'], 'unknown argument --toString'],
    [['--init=yes'], '--init takes no value'],
    [['--config'], '--config needs a value'],
    [['-c', ''], '-c needs a value'],
    [['--channel', 'three'], '--channel three: not a whole number'],
    [['--restarts', '-1'], '--restarts -1: not a whole number'],
  ])('refuses %j', (argv, message) => {
    expect(() => parseArguments(argv)).toThrow(message)
  })
})
