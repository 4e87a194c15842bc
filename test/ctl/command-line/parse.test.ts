import { describe, expect, it } from 'vitest'
import { type Command, UsageError } from '../../../src/ctl/command.ts'
import { type CommandLine, parseCommandLine } from '../../../src/ctl/command-line/parse.ts'

const load = async () => ({ run: async () => undefined })
const COMMANDS: readonly Command[] = [
  { name: 'ps', group: 'observe', summary: 'x', examples: [], load, options: [{ name: 'all', summary: '' }] },
  {
    name: 'exec',
    group: 'containers',
    summary: 'x',
    examples: [],
    load,
    arguments: [
      { name: 'CONTAINER', summary: '' },
      { name: 'PROGRAM', summary: '', repeated: true, verbatim: true },
    ],
    options: [
      { name: 'interactive', short: 'i', summary: '' },
      { name: 'tty', short: 't', summary: '' },
      { name: 'env', short: 'e', value: 'NAME=VALUE', repeated: true, summary: '' },
      { name: 'cmd', short: 'c', value: 'COMMAND', kind: 'list', repeated: true, summary: '' },
    ],
  },
  {
    name: 'policy set',
    group: 'calls',
    summary: 'x',
    examples: [],
    load,
    arguments: [{ name: 'FILE', summary: '' }],
  },
  {
    name: 'call',
    group: 'calls',
    summary: 'x',
    examples: [],
    load,
    arguments: [
      { name: 'METHOD', summary: '' },
      { name: 'REQUEST', summary: '', optional: true, repeated: true },
    ],
  },
]

function parse(...words: readonly string[]): CommandLine {
  return parseCommandLine(words, COMMANDS, ['ListRoutes'])
}

function values(...words: readonly string[]) {
  const parsed = parse(...words)
  if (parsed.kind !== 'command') throw new Error(`parsed as ${parsed.kind}`)
  return { name: parsed.command.name, values: parsed.values }
}

describe('parseCommandLine', () => {
  it('takes options of every command before and after it', () => {
    for (const words of [
      ['-a', 'unix://x', 'ps', '--all'],
      ['ps', '--all', '--address=unix://x'],
      ['ps', '-aunix://x', '--all'],
      ['--server-address', 'unix://x', 'ps', '--all'],
    ]) {
      const { values: found } = values(...words)
      expect([found.text('address'), found.flag('all')]).toEqual(['unix://x', true])
    }
  })

  it('leaves the words of a program as they are', () => {
    const { values: found } = values(
      'exec',
      '-it',
      '-e',
      'A=1',
      '-e',
      'B=2',
      'web',
      'sh',
      '-c',
      'x',
      '--help',
    )
    expect(found.rest('PROGRAM')).toEqual(['sh', '-c', 'x', '--help'])
    expect(found.argument('CONTAINER')).toBe('web')
    expect([found.flag('interactive'), found.flag('tty'), found.texts('env')]).toEqual([
      true,
      true,
      ['A=1', 'B=2'],
    ])
  })

  it('takes a number after --wait, and no other word', () => {
    expect(values('--wait', '3', 'ps').values.text('wait')).toBe('3')
    const { name, values: found } = values('--wait', 'ps')
    expect([name, found.flag('wait'), found.text('wait')]).toEqual(['ps', true, undefined])
  })

  it('gives one option all words up to the next option', () => {
    const { values: found } = values('exec', '-c', 'a', 'b', '-c', 'c', '-i', 'web', 'sh')
    expect(found.texts('cmd')).toEqual(['a', 'b', 'c'])
  })

  it('knows commands of two words, and calls by their names in any case', () => {
    expect(values('policy', 'set', 'x').name).toBe('policy set')
    expect(values('listroutes').values.argument('METHOD')).toBe('listroutes')
    expect(values('grpc.AgentService/ListRoutes', 'a=b').values.rest('REQUEST')).toEqual(['a=b'])
  })

  it('shows help for --help anywhere, also where arguments lack', () => {
    expect(parse()).toMatchObject({ kind: 'help', command: undefined })
    expect(parse('exec', '--help')).toMatchObject({ kind: 'help', command: { name: 'exec' } })
    expect(parse('ListRoutes', '-h')).toMatchObject({ kind: 'help', words: ['ListRoutes'] })
  })

  it.each([
    [['sp'], 'unknown command "sp", did you mean "ps"?'],
    [['ListRoute'], 'unknown command "ListRoute", did you mean "ListRoutes"?'],
    [['whatever'], 'unknown command "whatever", see agent-ctl --help'],
    [['ps', '--al'], 'unknown option --al, did you mean "--all"?'],
    [['ps', '-z'], 'unknown option -z, see agent-ctl ps --help'],
    [['ps', '--all=1'], '--all: takes no value'],
    [['ps', '-a'], '-a: no value, want -a ADDRESS'],
    [['ps', 'extra'], 'ps: unexpected "extra"'],
    [['exec', 'web'], 'exec: no PROGRAM, see agent-ctl exec --help'],
    [['policy'], 'policy: no command, want one of set'],
    [['policy', 'x'], 'policy: unknown command "x", want one of set'],
    [['-o', 'jsn', 'ps'], '--output: unknown value "jsn", did you mean "json"?'],
  ])('refuses %j', (words, text) => {
    expect(() => parse(...words)).toThrow(UsageError)
    expect(() => parse(...words)).toThrow(text)
  })
})
