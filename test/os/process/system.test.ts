import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { getPriority } from 'node:os'
import { describe, expect, it } from 'vitest'
import { linuxSystem } from '../../../src/os/process/system.ts'
import { realNative } from '../../support/os/real-native.ts'

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
