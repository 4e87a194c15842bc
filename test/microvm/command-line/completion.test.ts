import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { completionFor, SHELLS } from '../../../src/client/completion.mjs'
import { MACHINE_COMMANDS } from '../../../src/microvm/command-line/commands.mjs'
import { MICROVM, OPTIONS } from '../../../src/microvm/command-line/options.mjs'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the completion of ./microvm', () => {
  it.for(SHELLS)('of %s can be parsed by that shell, and has every option', (shell, { skip }) => {
    const text = completionFor(shell, MICROVM)
    for (const name of Object.keys(OPTIONS)) expect(text).toContain(name)
    const file = join(temporaryFolder(), 'completion')
    writeFileSync(file, text)
    const { error, status, stderr } = spawnSync(shell, ['-n', file], { encoding: 'utf8' })
    skip(error !== undefined, `${shell} is not installed`)
    expect([status, stderr]).toEqual([0, ''])
  })

  it.for(SHELLS)('of %s has every command', (shell) => {
    for (const { name } of MACHINE_COMMANDS)
      expect(completionFor(shell, MICROVM)).toMatch(new RegExp(`\\b${name}\\b`))
  })

  const tool = join(temporaryFolder(), 'microvm')
  writeFileSync(tool, '#!/bin/sh\n[ "$*" = "completion instances" ] && echo web-1 && echo db\n', {
    mode: 0o755,
  })

  function offered(...words: readonly string[]): readonly string[] {
    const script = `${completionFor('bash', MICROVM)}
COMP_WORDS=(${tool} ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}
_microvm; printf '%s\\n' "\${COMPREPLY[@]}"`
    const { stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' })
    expect(stderr).toBe('')
    return stdout.split('\n').filter((word) => word !== '')
  }

  it.each([
    [['com'], ['completion']],
    [['--ver'], ['--version']],
    [['completion', 'z'], ['zsh']],
    [['run', '--mem'], ['--memory']],
    [
      ['run', '--cpus', '1', '--machine', ''],
      ['q35', 'pc', 'microvm'],
    ],
    [['run', '--kernel', 'tr'], ['trixie']],
    // The shell completes file names.
    [['run', '--rootfs', ''], []],
    [['run', '--kernel', './'], []],
    [['run', 'sh', '--mem'], []],
    [['repl'], ['replace']],
    [['events', '--fol'], ['--follow']],
    [['stop', '--gr'], ['--grace']],
    // The daemon's instances, of which the tool is asked.
    [['start', 'we'], ['web-1']],
    [['stop', '--grace', '5', 'd'], ['db']],
    [['start', 'web-1', 'd'], []],
  ])('of bash offers for %j', (words, expected) => {
    expect(offered(...words)).toEqual(expected)
  })
})
