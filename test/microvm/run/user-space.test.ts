import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { userSpaceRuns } from '../../../src/microvm/run/boot-guest.ts'

function consoleWith(...lines: readonly string[]) {
  const listeners = new Set<(line: string) => void>()
  const onLine = (listener: (line: string) => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }
  const print = (line: string) => {
    for (const listener of listeners) listener(line)
  }
  return { lines, onLine, print, listeners }
}

describe('userSpaceRuns', () => {
  it('returns at the first line of vminit or the agent, printed before or after', async () => {
    await userSpaceRuns(consoleWith('[ 1.0] Run /init as init process', '{"msg":"listening"}'), neverAborted)
    const booting = consoleWith('[ 1.0] Run /init as init process')
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

  it('rejects with the reason of its signal, and listens no more', async () => {
    const booting = consoleWith()
    const gone = new AbortController()
    const done = userSpaceRuns(booting, gone.signal)
    gone.abort(new Error('QEMU exited with status 1'))
    await expect(done).rejects.toThrow('QEMU exited with status 1')
    expect(booting.listeners.size).toBe(0)
  })
})
