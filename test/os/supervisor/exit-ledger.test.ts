import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { ExitLedger } from '../../../src/os/supervisor/exit-ledger.ts'
import type { ExitRecord } from '../../../src/os/supervisor/supervisor.ts'

function exitAt(pid: number, reapedAtNs: bigint, exitCode = 0): ExitRecord {
  return { pid, exitCode, signal: undefined, reapedAtNs, userTimeUs: 0n, systemTimeUs: 0n, maxRssKib: 0n }
}

function ledgerAt(startNs: bigint) {
  const time = { nowNs: startNs }
  return { time, ledger: new ExitLedger(() => time.nowNs) }
}

/** The state of a promise after everything that can run now has run. */
async function outcome(promise: Promise<ExitRecord>): Promise<number | 'pending'> {
  return await Promise.race([promise.then(({ exitCode }) => exitCode), setImmediate('pending' as const)])
}

describe('ExitLedger', () => {
  it('answers an exit that was asked for before it happened', async () => {
    const { ledger } = ledgerAt(100n)
    const exit = ledger.watch().exitOf(7)
    ledger.record(exitAt(7, 150n, 3))
    expect((await exit).exitCode).toBe(3)
  })

  it('answers an exit that happened before its pid was known', async () => {
    const { ledger } = ledgerAt(100n)
    const watch = ledger.watch()
    ledger.record(exitAt(7, 150n, 3))
    expect((await watch.exitOf(7)).exitCode).toBe(3)
  })

  it('never answers with a process that was reaped before the watch began', async () => {
    const { ledger, time } = ledgerAt(100n)
    ledger.watch()
    ledger.record(exitAt(7, 150n, 1))
    time.nowNs = 200n
    const exit = ledger.watch().exitOf(7)
    ledger.record(exitAt(7, 199n, 2))
    expect(await outcome(exit)).toBe('pending')
    ledger.record(exitAt(7, 200n, 3))
    expect((await exit).exitCode).toBe(3)
  })

  it('answers every wait for the pid', async () => {
    const { ledger } = ledgerAt(100n)
    const exits = [ledger.watch().exitOf(7), ledger.watch().exitOf(7)]
    ledger.record(exitAt(7, 150n, 3))
    expect((await Promise.all(exits)).map(({ exitCode }) => exitCode)).toEqual([3, 3])
  })

  it('keeps an exit without a wait only while an open watch may ask for it', async () => {
    const { ledger } = ledgerAt(100n)
    const first = ledger.watch()
    ledger.record(exitAt(7, 150n, 1))
    first.close()
    const second = ledger.watch()
    expect(await outcome(second.exitOf(7))).toBe('pending')
  })

  it('keeps an exit without a wait for the older of two watches when the other closes', async () => {
    const { ledger } = ledgerAt(100n)
    const [first, second] = [ledger.watch(), ledger.watch()]
    ledger.record(exitAt(7, 150n, 1))
    second.close()
    expect(await outcome(first.exitOf(7))).toBe(1)
  })

  it('answers the exit of a process that began at a known time with the first since then', async () => {
    const { ledger } = ledgerAt(100n)
    ledger.watch(0n)
    ledger.record(exitAt(7, 40n, 1))
    ledger.record(exitAt(7, 60n, 2))
    expect((await ledger.exitOfProcess(7, 30n)).exitCode).toBe(1)
    ledger.record(exitAt(7, 40n, 1))
    ledger.record(exitAt(7, 60n, 2))
    expect((await ledger.exitOfProcess(7, 50n)).exitCode).toBe(2)
  })

  it('reports since when a watch may ask for exits', () => {
    const { ledger, time } = ledgerAt(100n)
    expect(ledger.neededSinceNs).toBeUndefined()
    const first = ledger.watch()
    time.nowNs = 200n
    ledger.watch()
    expect(ledger.neededSinceNs).toBe(100n)
    first.close()
    expect(ledger.neededSinceNs).toBe(200n)
  })

  it('keeps a pending wait after its watch has closed, and refuses a new one', async () => {
    const { ledger } = ledgerAt(100n)
    const watch = ledger.watch()
    const exit = watch.exitOf(7)
    watch.close()
    ledger.record(exitAt(7, 150n, 4))
    expect((await exit).exitCode).toBe(4)
    await expect(watch.exitOf(8)).rejects.toThrow('exit watch for pid 8: closed')
  })

  it('answers 255 for a lost exit, but not to later waits', async () => {
    const { ledger, time } = ledgerAt(100n)
    const watch = ledger.watch()
    const early = watch.exitOf(7)
    time.nowNs = 300n
    const late = watch.exitOf(7)
    ledger.lost(7, 200n)
    expect((await early).exitCode).toBe(255)
    expect(await outcome(late)).toBe('pending')
  })

  it('rejects every wait, pending or new, once it has failed', async () => {
    const { ledger } = ledgerAt(100n)
    const watch = ledger.watch()
    const exit = watch.exitOf(7)
    ledger.fail(new AgentError('FAILED_PRECONDITION', 'vminit is gone'))
    await expect(exit).rejects.toThrow('vminit is gone')
    await expect(watch.exitOf(8)).rejects.toThrow('vminit is gone')
  })
})
