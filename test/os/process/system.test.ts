import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { linuxSystem } from '../../../src/os/process/system.ts'
import { addonFolder, realNative } from '../../support/os/real-native.ts'

describe('linuxSystem', () => {
  it('signals a process, and throws when there is none', async () => {
    const system = linuxSystem(await realNative())
    const child = spawn('sleep', ['100'])
    const exited = once(child, 'exit')
    system.signal(child.pid ?? 0, 0)
    system.signal(child.pid ?? 0, 15)
    expect(await exited).toEqual([null, 'SIGTERM'])
    expect(() => system.signal(4194305, 15)).toThrow('kill pid 4194305: ESRCH')
  })

  it('handles a signal until it is told to stop', async () => {
    const system = linuxSystem(await realNative())
    const handled = Promise.withResolvers<void>()
    const stop = system.onSignal('SIGUSR2', handled.resolve)
    system.signal(system.pid, 12)
    await handled.promise
    stop()
    expect(process.listenerCount('SIGUSR2')).toBe(0)
  })

  // Functions of V8 and Node that are not of N-API do it (CONTRIBUTING.md); of a Node without them nothing is reported.
  it('writes the stack of a program that never returns on SIGUSR2', async () => {
    const program = `
      const holder = { exports: {} }
      process.dlopen(holder, process.argv[1])
      const reported = holder.exports.reportStackOnSignal()
      if (reported !== 0) throw new Error('reportStackOnSignal: ' + reported)
      function endlessLoop() { for (;;); }
      process.kill(process.pid, 'SIGUSR2')
      endlessLoop()`
    const argv = ['-e', program, join(await addonFolder(), 'addon.node')]
    const child = spawn(process.execPath, argv, { stdio: ['ignore', 'inherit', 'pipe'] })
    let said = ''
    for await (const chunk of child.stderr) {
      said += String(chunk)
      if (said.includes('endlessLoop')) break
    }
    child.kill('SIGKILL')
    expect(said).toMatch(/JavaScript stack trace.*endlessLoop/s)
  })

  it('sets the limit of open files, soft and hard', async () => {
    const system = linuxSystem(await realNative())
    const limits = () =>
      /Max open files\s+(\d+)\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.slice(1)
    const hard = Number(limits()?.[1])
    system.setOpenFileLimit(hard)
    expect(limits()).toEqual([String(hard), String(hard)])
    expect(() => system.setOpenFileLimit(2 ** 40)).toThrow(`set the limit of open files to ${2 ** 40}: EPERM`)
  })

  it('sets the priority of all its threads', async () => {
    const system = linuxSystem(await realNative())
    // A thread of the pool, which begins with the first work.
    await readFile('/proc/self/stat')
    const priorities = () =>
      new Set(readdirSync('/proc/self/task').map((thread) => getPriority(Number(thread))))
    system.setNice(-5)
    expect(priorities()).toEqual(new Set([-5]))
    system.setNice(0)
    expect(priorities()).toEqual(new Set([0]))
    expect(() => system.setNice(100)).toThrow('set nice to 100: ERR_OUT_OF_RANGE')
  })
})
