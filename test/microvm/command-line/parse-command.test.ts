import { describe, expect, it } from 'vitest'
import { MACHINE_COMMANDS } from '../../../src/microvm/command-line/commands.mjs'
import { MICROVM_HELP } from '../../../src/microvm/command-line/help.mjs'
import { parseCommandLine } from '../../../src/microvm/command-line/parse.mjs'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'

function valuesOf(...words: string[]): Readonly<Record<string, string>> {
  const commandLine = parseCommandLine(words)
  if (commandLine.kind !== 'command') throw new Error('no command')
  expect(commandLine.command.name).toBe(words[0])
  return Object.fromEntries(commandLine.values)
}

describe('parseCommandLine of a command for machines of the daemon', () => {
  it.each([
    [['ensure', 'web.json'], { FILE: 'web.json' }],
    [['ensure', '-'], { FILE: '-' }],
    [['stop', '--grace', '5', 'web', '--json'], { KEY: 'web', grace: '5', json: '' }],
    [['stop', 'web', '--grace=5'], { KEY: 'web', grace: '5' }],
    [['plug', 'web', 'data', 'disk.json'], { KEY: 'web', DEVICE: 'data', FILE: 'disk.json' }],
    [['replace', 'web', 'file', 'disk.json'], { KEY: 'web', BACKEND: 'file', FILE: 'disk.json' }],
    [['events', '-f', '--after', '0'], { follow: '', after: '0' }],
    [['rm', '--', '-strange'], { KEY: '-strange' }],
    [['ps', '--socket', '/run/x.sock', '--timeout', '3'], { socket: '/run/x.sock', timeout: '3' }],
    [['daemon', '--mock', '--state', '/srv'], { mock: '', state: '/srv' }],
  ])('parses %j', (words, expected) => {
    expect(valuesOf(...words)).toEqual(expected)
  })

  it.each([
    [['start'], 'start: no KEY, see ./microvm start --help'],
    [['start', ''], 'start: no KEY'],
    [['plug', 'web', 'data'], 'plug: no FILE'],
    [['pause', 'web', 'db'], 'pause: unexpected "db", see ./microvm pause --help'],
    [['stop', 'web', '--grace', '0'], '--grace 0: give a whole number from 1 to 3600'],
    [['stop', 'web', '--grace', '1e3'], '--grace 1e3: give a whole number'],
    [['events', '--after', '9007199254740992'], '--after 9007199254740992: give a whole number from 0'],
    [['ps', '--timeout'], '--timeout needs a value: --timeout SECONDS'],
    [['ps', '--socket='], '--socket needs a value'],
    [['ps', '--json=yes'], '--json takes no value'],
    [['ps', '--jsno'], 'unknown option --jsno, did you mean "--json"?'],
    [['ps', '-x'], 'unknown option -x, see ./microvm ps --help'],
    [['ps', '--toString'], 'unknown option --toString'],
    [['evnets'], 'unknown command evnets, did you mean "events"?'],
  ])('refuses %j in one sentence', (words, sentence) => {
    expect(() => parseCommandLine(words)).toThrow(UsageError)
    expect(() => parseCommandLine(words)).toThrow(sentence)
  })

  it.each(MACHINE_COMMANDS)(
    'explains all of $name',
    ({ arguments: list, examples, name, options, summary }) => {
      const commandLine = parseCommandLine([name, '--help'])
      if (commandLine.kind !== 'text') throw new Error('no help')
      const { text } = commandLine
      expect(text).toMatch(new RegExp(`^Usage: \\./microvm ${name} \\[OPTIONS\\]`))
      for (const option of options) expect(text).toContain(`--${option.name}`)
      for (const argument of list)
        expect(text).toMatch(new RegExp(`^Usage: .* \\[?${argument.name}\\]?( |$)`, 'm'))
      for (const [words] of examples) expect(text).toContain(`./microvm ${words}`)
      expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100)
      expect(MICROVM_HELP).toMatch(new RegExp(`^  ${name} +${summary.slice(0, 20)}`, 'm'))
    },
  )

  it('shows the help also beside mistakes of arguments', () => {
    expect(parseCommandLine(['plug', '-h'])).toMatchObject({ kind: 'text' })
  })
})
