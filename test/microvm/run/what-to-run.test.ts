import { describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/microvm/command-line/parse.mjs'
import type { ImageConfig } from '../../../src/microvm/run/oci-layout.ts'
import { whatToRun } from '../../../src/microvm/run/what-to-run.ts'

const nothing = { command: [], rootfs: undefined, env: [], workdir: undefined, user: undefined }
const image: ImageConfig = {
  entrypoint: ['/entry'],
  command: ['serve'],
  env: ['A=1'],
  cwd: '/srv',
  user: { uid: 1000, gid: 100, additionalGids: [5] },
}

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
    const options = { command: ['ls'], rootfs: 'x', env: ['A=2'], workdir: '/', user: { uid: 0, gid: 0 } }
    expect(whatToRun(options, image)).toEqual({
      args: ['/entry', 'ls'],
      env: ['A=1', 'A=2'],
      cwd: '/',
      user: { uid: 0, gid: 0, additionalGids: [] },
    })
  })

  it('runs the demonstration when nothing is named', () => {
    expect(whatToRun(nothing, undefined).args[2]).toContain('Hello from a container')
  })

  it('throws for a root filesystem without a command', () => {
    expect(() => whatToRun({ ...nothing, rootfs: 'x' }, undefined)).toThrow(UsageError)
  })
})
