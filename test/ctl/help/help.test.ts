import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { completionFor, SHELLS } from '../../../src/client/completion.mjs'
import { COMMANDS } from '../../../src/ctl/commands/table.ts'
import { completedTool, isPlainWord } from '../../../src/ctl/commands/tool/completion.ts'
import { manPage } from '../../../src/ctl/commands/tool/man.ts'
import { commandHelp, toolHelp } from '../../../src/ctl/help/help-text.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const METHODS = ['ListRoutes', 'Check']
const TOOL = completedTool(COMMANDS, METHODS)

describe('the table of commands', () => {
  it('names each command once, with an example that begins with its name or an option', () => {
    const names = COMMANDS.map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
    expect(COMMANDS.filter(({ examples }) => examples.length === 0)).toEqual([])
  })

  it('loads a module for each command', async () => {
    for (const { load } of COMMANDS) expect((await load()).run).toBeTypeOf('function')
  })

  it('gives no option of a command the name or letter of one of another meaning', () => {
    for (const { arguments: list = [], name, options = [] } of COMMANDS) {
      const letters = options.flatMap(({ short }) => short ?? [])
      expect(new Set(letters).size, name).toBe(letters.length)
      expect(
        letters.filter((letter) => ['a', 'o', 'h'].includes(letter)),
        name,
      ).toEqual([])
      expect(
        list.slice(0, -1).some(({ repeated }) => repeated),
        name,
      ).toBe(false)
    }
  })
})

describe('help', () => {
  it('lists every command, in lines of at most 110 characters', () => {
    const text = toolHelp(COMMANDS)
    for (const { name } of COMMANDS) expect(text).toContain(`  ${name}`)
    expect(text.split('\n').filter((line) => line.length > 110)).toEqual([])
  })

  it('shows the options and examples of each command', () => {
    for (const command of COMMANDS) {
      const text = commandHelp(command)
      for (const { name } of command.options ?? []) expect(text).toContain(`--${name}`)
      for (const [words] of command.examples) expect(text).toContain(`agent-ctl ${words}`)
    }
  })

  it('is shown by --help and by help', async () => {
    const shown = await ctl(['exec', '--help'])
    expect(shown.stdout).toBe(commandHelp(COMMANDS.find(({ name }) => name === 'exec') ?? fail()))
    expect(await ctl(['help', 'exec'])).toEqual(shown)
    expect((await ctl([])).stdout).toBe(toolHelp(COMMANDS))
    expect((await ctl(['help', 'SignalProcess'])).stdout).toBe((await ctl(['SignalProcess', '-h'])).stdout)
    expect(await ctl(['help', 'exce'])).toMatchObject({
      status: 2,
      stderr: 'agent-ctl: unknown command "exce", did you mean "exec"?\n',
    })
  })
})

function fail(): never {
  throw new Error('no such command')
}

describe('completions', () => {
  it.each(SHELLS)('of %s name every command, option and call', (shell) => {
    const text = completionFor(shell, TOOL)
    for (const { name, options = [] } of COMMANDS) {
      for (const word of name.split(' ')) expect(text).toContain(word)
      for (const option of options) expect(text).toContain(option.name)
    }
    for (const method of METHODS) expect(text).toContain(method)
  })

  it.for(SHELLS)('of %s can be parsed by that shell', (shell, { skip }) => {
    const file = join(temporaryFolder(), 'completion')
    writeFileSync(file, completionFor(shell, TOOL))
    const { error, status, stderr } = spawnSync(shell, ['-n', file], { encoding: 'utf8' })
    skip(error !== undefined, `${shell} is not installed`)
    expect([status, stderr]).toEqual([0, ''])
  })

  /**
   * Bash's completions of the last word. The completion calls `agentCtl`; `functions` are further functions of the shell.
   */
  function offered(words: readonly string[], agentCtl = 'false', functions = ''): readonly string[] {
    const script = `${completionFor('bash', TOOL)}
${functions}
COMP_WORDS=('${agentCtl}' ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}
_agent_ctl; printf '%s\\n' "\${COMPREPLY[@]}"`
    const { stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' })
    expect(stderr).toBe('')
    return stdout.split('\n').filter((word) => word !== '')
  }

  /** A tool that prints its arguments, one a line. */
  function echoingTool(): string {
    const file = join(temporaryFolder(), 'agent-ctl')
    writeFileSync(file, '#!/bin/sh\nprintf "%s\\n" "$@"\n', { mode: 0o755 })
    return file
  }

  it('of bash complete commands, options, their values, and calls', () => {
    expect(offered(['exe'])).toEqual(['exec'])
    expect(offered(['ListR'])).toEqual(['ListRoutes'])
    expect(offered(['exec', '--work'])).toEqual(['--workdir'])
    expect(offered(['-o', 'j'])).toEqual(['json'])
    expect(offered(['-o', 'json', 'completion', 'f'])).toEqual(['fish'])
    expect(offered(['call', 'List'])).toEqual(['ListRoutes'])
    expect(offered(['exec', 'web', 'sh', '--work'])).toEqual([])
    expect(offered(['--record', '/etc/passw'])).toContain('/etc/passwd')
  })

  it('of bash ask the agent of the command line for containers, where a command takes one', () => {
    const tool = echoingTool()
    const asked = ['-a', 'microvm://web', '--protocol', 'grpc', 'completion', 'containers']
    const address = ['-a', 'microvm', ':', '//web', '--protocol', 'grpc']
    const offers = (...words: readonly string[]) =>
      offered([...address, ...words], tool).filter((word) => asked.includes(word))
    expect(offers('exec', '-it', '-e', 'A=1', 'c')).toEqual(['completion', 'containers'])
    expect(offers('stats', 'one', 'm')).toEqual(['microvm://web'])
    expect(offers('exec', 'one', 'c')).toEqual([])
    expect(offers('capabilities', 'c')).toEqual([])
  })

  it('of bash ask for machines, and offer what follows the last colon', () => {
    const file = join(temporaryFolder(), 'agent-ctl')
    writeFileSync(file, '#!/bin/sh\nprintf "microvm://%s\\n" ant bee\n', { mode: 0o755 })
    expect(offered(['-a', 'mi'], file)).toEqual(['microvm://ant', 'microvm://bee'])
    expect(offered(['ps', '--address', 'microvm', ':', '//b'], file)).toEqual(['//bee'])
  })

  it('ask for no id that bash would expand', () => {
    const ids = ['web', 'web-1.x_y', '$(reboot)', '`reboot`', '~root', '{a,b}', 'a b', 'a\nb', "'", '*', '']
    expect(ids.filter(isPlainWord)).toEqual(['web', 'web-1.x_y'])
  })

  it('of bash say nothing when the agent cannot be asked, or does not answer', () => {
    expect(offered(['-a', ''])).toEqual([])
    const file = join(temporaryFolder(), 'agent-ctl')
    writeFileSync(file, '#!/bin/sh\nexec sleep 1000\n', { mode: 0o755 })
    const soon = `timeout() { command timeout 0.05 "\${@:2}"; }`
    expect(offered(['exec', 'c'], file, soon)).toEqual([])
  })
})

describe('the man page', () => {
  it('has a section for each command', () => {
    const text = manPage(COMMANDS, '1.2.3')
    for (const { name } of COMMANDS)
      expect(text).toMatch(new RegExp(`^\\.SS ${name.replaceAll('-', '\\\\-')}`, 'm'))
    expect(text).toContain('agent-ctl 1.2.3')
  })
})
