import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { writeDaemonUnit } from '../../src/build/daemon-unit.ts'
import { parseCommandLine } from '../../src/microvm/command-line/parse.mjs'
import { temporaryFolder } from '../support/temporary-folder.ts'

const path = writeDaemonUnit(join(temporaryFolder(), 'dist'), '/bin/true')
const text = readFileSync(path, 'utf8')

describe('the unit of the daemon', () => {
  it('runs a command line that the tool takes', () => {
    const [, words = ''] = /^ExecStart="\/bin\/true" (.*)$/m.exec(text) ?? []
    expect(parseCommandLine(words.split(' '))).toMatchObject({
      kind: 'command',
      command: { name: 'daemon' },
    })
  })

  it('lets machines live on when the daemon ends', () => {
    expect(text).toMatch(/^KillMode=process$/m)
    expect(text).toMatch(/^OOMPolicy=continue$/m)
  })

  it('has sections and settings, one a line', () => {
    const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
    for (const line of lines) expect(line).toMatch(/^(\[(Unit|Service|Install)\]|[A-Z]\w+=\S.*)$/)
  })

  it('passes systemd-analyze', ({ skip }) => {
    const { error, status, stderr, stdout } = spawnSync('systemd-analyze', ['verify', '--man=no', path], {
      encoding: 'utf8',
    })
    skip(error !== undefined, 'systemd-analyze is not installed')
    expect({ status, output: stdout + stderr }).toEqual({ status: 0, output: '' })
  })
})
