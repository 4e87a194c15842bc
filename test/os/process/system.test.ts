import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { linuxSystem, type System } from '../../../src/os/process/system.ts'
import { FakeSystem } from '../../support/fakes/process/fake-system.ts'
import { addonFolder, realNative } from '../../support/os/real-native.ts'

interface Process {
  readonly pid: number
  readonly ended: Promise<string>
}

interface Implementation {
  readonly system: System
  start(): Process
}

async function onLinux(): Promise<Implementation> {
  const start = () => {
    const child = spawn('sleep', ['100'])
    return { pid: child.pid ?? 0, ended: once(child, 'exit').then(([, signal]) => signal) }
  }
  return { system: linuxSystem(await realNative()), start }
}

async function fake(): Promise<Implementation> {
  const system = new FakeSystem()
  const start = () => {
    const ended = Promise.withResolvers<string>()
    system.processes.add(77)
    system.onKill = (pid, signal) => {
      system.processes.delete(pid)
      ended.resolve(signal === 15 ? 'SIGTERM' : `${signal}`)
    }
    return { pid: 77, ended: ended.promise }
  }
  system.processes.add(system.pid)
  return { system, start }
}

describe.each([
  ['linuxSystem', onLinux],
  ['FakeSystem', fake],
])('%s', (_name, build) => {
  it('signals a process, and throws when there is none', async () => {
    const { system, start } = await build()
    const { pid, ended } = start()
    system.signal(pid, 0)
    system.signal(pid, 15)
    expect(await ended).toBe('SIGTERM')
    const gone = { code: 'INTERNAL', errno: 'ESRCH', message: `kill pid ${pid}: ESRCH` }
    for (const signal of [0, 15]) {
      expect(() => system.signal(pid, signal)).toThrow(expect.objectContaining(gone))
    }
  })

  it('calls each handler of a signal until it is removed', async () => {
    const { system } = await build()
    const called: string[] = []
    const stops = ['one', 'other'].map((name) => system.onSignal('SIGUSR2', () => called.push(name)))
    if (system instanceof FakeSystem) system.onKill = () => system.receive('SIGUSR2')
    system.signal(system.pid, 12)
    await expect.poll(() => called).toEqual(['one', 'other'])
    stops[0]?.()
    system.signal(system.pid, 12)
    await expect.poll(() => called).toEqual(['one', 'other', 'other'])
    stops[1]?.()
    expect(process.listenerCount('SIGUSR2')).toBe(0)
  })
})

describe('linuxSystem', () => {
  // Needs functions of V8 and Node outside of N-API (CONTRIBUTING.md); a Node without them reports nothing.
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
    // The thread pool begins with the first work.
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
