import { describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import type { ImageConfig } from '../../../src/microvm/run/oci-layout.ts'
import { passesInput, whatToRun } from '../../../src/microvm/run/run-command.ts'

const nothing = { command: [], rootfs: undefined, env: [], workdir: undefined }
const image: ImageConfig = {
  entrypoint: ['/entry'],
  command: ['serve'],
  env: ['A=1'],
  cwd: '/srv',
  user: { uid: 1000, gid: 100, additionalGids: [5] },
}

describe('passesInput', () => {
  const pipe = {}
  const terminal = { isTTY: true }

  it.each([
    ['a pipe', { interactive: false, tty: false }, pipe, true],
    ['a pipe with -i', { interactive: true, tty: false }, pipe, true],
    ['no pipe with -t alone', { interactive: false, tty: true }, pipe, false],
    ['no terminal', { interactive: false, tty: false }, terminal, false],
    ['a terminal with -i', { interactive: true, tty: false }, terminal, true],
    ['a terminal with -it', { interactive: true, tty: true }, terminal, true],
  ])('passes on %s', (_what, options, stdin, isPassed) => {
    expect(passesInput(options, stdin)).toBe(isPassed)
  })
})

describe('whatToRun', () => {
  it('uses command, environment, directory and user of the image', () => {
    expect(whatToRun({ ...nothing, rootfs: 'x' }, image)).toEqual({
      args: ['/entry', 'serve'],
      env: ['A=1'],
      cwd: '/srv',
      user: { uid: 1000, gid: 100, additionalGids: [5] },
    })
  })

  it('prefers the command line, and keeps the entrypoint', () => {
    const options = { command: ['ls'], rootfs: 'x', env: ['A=2'], workdir: '/' }
    expect(whatToRun(options, image)).toEqual({
      args: ['/entry', 'ls'],
      env: ['A=1', 'A=2'],
      cwd: '/',
      user: { uid: 1000, gid: 100, additionalGids: [5] },
    })
  })

  it('runs the demonstration when nothing is named', () => {
    expect(whatToRun(nothing, undefined).args[2]).toContain('Hello from a container')
  })

  it('throws for a root filesystem without a command', () => {
    expect(() => whatToRun({ ...nothing, rootfs: 'x' }, undefined)).toThrow(UsageError)
  })
})
