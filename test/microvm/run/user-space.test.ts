import { spawn } from 'node:child_process'
import { afterAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { cpuDemands } from '../../../src/host/qemu/lock-up.ts'
import { userSpaceRuns } from '../../../src/microvm/run/boot-guest.ts'
import { endChild } from '../../support/processes.ts'

const spinning = spawn('sh', ['-c', 'while :; do :; done'])
const sleeping = spawn('sleep', ['1000'])
afterAll(async () => {
  await Promise.all([endChild(spinning), endChild(sleeping)])
})

const HOUR_MS = 3_600_000

function guest(pid: number | undefined, ...lines: readonly string[]) {
  const listeners = new Set<(line: string) => void>()
  const onLine = (listener: (line: string) => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }
  const print = (line: string) => {
    for (const listener of listeners) listener(line)
  }
  return { pid: pid ?? 0, console: { lines, onLine }, print, listeners }
}

describe('userSpaceRuns', () => {
  it('returns at the first line of vminit or the agent, printed before or after', async () => {
    await userSpaceRuns(
      guest(spinning.pid, '[ 1.0] Run /init as init process', '{"msg":"listening"}'),
      neverAborted,
    )
    const booting = guest(spinning.pid, '[ 1.0] Run /init as init process')
    let runs = false
    const done = userSpaceRuns(booting, neverAborted).then(() => {
      runs = true
    })
    booting.print('[ 1.1] random: crng init done')
    await Promise.resolve()
    expect(runs).toBe(false)
    booting.print('vminit: the agent was killed by signal 9: restart 1 in 0 ms')
    await done
    expect(booting.listeners.size).toBe(0)
  })

  it('considers a silent guest as up when its CPUs are idle, and not while it boots', async () => {
    const silent = { shortestMs: 0, longestMs: HOUR_MS }
    await userSpaceRuns(guest(sleeping.pid), neverAborted, silent)
    let runs = false
    const done = userSpaceRuns(guest(spinning.pid), neverAborted, silent).then(() => {
      runs = true
    })
    await cpuDemands(spinning.pid ?? 0)
    await cpuDemands(spinning.pid ?? 0)
    expect(runs).toBe(false)
    spinning.kill('SIGSTOP')
    await done
    spinning.kill('SIGCONT')
  })

  it('considers any guest as up after the longest time', async () => {
    const silent = guest(spinning.pid)
    await userSpaceRuns(silent, neverAborted, { shortestMs: 0, longestMs: 0 })
    expect(silent.listeners.size).toBe(0)
  })

  it('rejects with the reason of its signal, and listens no more', async () => {
    const booting = guest(spinning.pid)
    const gone = new AbortController()
    const done = userSpaceRuns(booting, gone.signal)
    gone.abort(new Error('QEMU exited with status 1'))
    await expect(done).rejects.toThrow('QEMU exited with status 1')
    expect(booting.listeners.size).toBe(0)
  })
})
