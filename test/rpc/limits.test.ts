import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { LIMITS, type Share, type TotalLimits, Totals } from '../../src/rpc/limits.ts'
import { turns } from '../support/rpc/fake-methods.ts'
import { connectionTotals } from '../support/rpc/totals.ts'

function totalsOf(limits: Partial<TotalLimits> = {}): Totals {
  return new Totals({ ...LIMITS, ...limits })
}

function withTotal(name: keyof TotalLimits['total'], limit: number, reserve: number): Totals {
  return totalsOf({ total: { ...LIMITS.total, [name]: { limit, reserve } } })
}

function used(totals: Totals, name: string): number | undefined {
  return totals.uses().find((use) => use.name === name)?.used
}

describe('Totals', () => {
  it('keeps the reserve of calls for what ends things, and half of it for what waits for ends', () => {
    const totals = withTotal('calls', 6, 4)
    const connection = connectionTotals(totals)
    const opened = (share: Share) => connection.openCall(share, 0) === undefined
    expect([opened('ordinary'), opened('ordinary'), opened('ordinary')]).toEqual([true, true, false])
    expect([opened('waiting'), opened('waiting'), opened('waiting')]).toEqual([true, true, false])
    expect([opened('reserved'), opened('reserved')]).toEqual([true, true])
    expect(connection.openCall('reserved', 0)).toBe('open calls of all connections: 6 of at most 6 in use')
    connection.closeCall(0)
    expect(opened('reserved')).toBe(true)
  })

  it('opens no call for whose request there are not enough bytes', () => {
    const totals = withTotal('bytes', 100, 10)
    const connection = connectionTotals(totals)
    expect(connection.openCall('ordinary', 91)).toBe(
      'bytes of requests and answers of all connections: 0 of at most 100 in use',
    )
    expect(connection.openCall('reserved', 91)).toBeUndefined()
    connection.closeCall(91)
    expect(totals.uses().filter(({ name }) => name === 'calls' || name === 'bytes')).toEqual([
      expect.objectContaining({ used: 0 }),
      expect.objectContaining({ used: 0 }),
    ])
  })

  it('closes connections without a call for their bytes, oldest first, and never one that has had a call', () => {
    const totals = withTotal('bytes', 100, 0)
    const closed: string[] = []
    const names = ['caller', 'idle', 'first', 'second']
    const [caller, , first, second] = names.map((name) => connectionTotals(totals, () => closed.push(name)))
    expect([caller, first, second].map((each) => each?.takeBytes(30, 'ordinary'))).toEqual([
      undefined,
      undefined,
      undefined,
    ])
    caller?.hasCall()
    const other = connectionTotals(totals)
    other.hasCall()
    expect(other.takeBytes(30, 'ordinary')).toBeUndefined()
    expect(closed).toEqual(['first'])
    expect(other.takeBytes(30, 'ordinary')).toBeUndefined()
    expect(closed).toEqual(['first', 'second'])
    expect(other.takeBytes(30, 'ordinary')).toMatch(
      /^bytes of requests and answers of all connections: 90 of/,
    )
    first?.giveBytes(30)
    expect(used(totals, 'bytes')).toBe(90)
    caller?.end()
    expect(used(totals, 'bytes')).toBe(60)
  })

  it('closes the oldest connection without a call for a new one, or refuses the new one', () => {
    const totals = totalsOf({ connections: 2 })
    const closed: string[] = []
    const first = connectionTotals(totals, () => closed.push('first'))
    const second = connectionTotals(totals, () => closed.push('second'))
    first.hasCall()
    const third = connectionTotals(totals, () => closed.push('third'))
    expect(closed).toEqual(['second'])
    third.hasCall()
    expect(totals.addConnection(() => {})).toBeUndefined()
    second.end()
    third.end()
    expect(totals.addConnection(() => {})).toBeDefined()
  })

  it('lets a limited number of calls work at once, the others one after the other', async () => {
    const totals = totalsOf({ workingCalls: 1 })
    const begun: string[] = []
    const begin = async (name: string) => {
      const end = await totals.beginWork(neverAborted)
      begun.push(name)
      return end
    }
    const [first, second, third] = [begin('first'), begin('second'), begin('third')]
    await turns()
    expect(begun).toEqual(['first'])
    ;(await first)()
    ;(await second)()
    ;(await third)()
    expect(begun).toEqual(['first', 'second', 'third'])
    expect(used(totals, 'working_calls')).toBe(0)
  })

  it('forgets a call that is cancelled while it waits to work', async () => {
    const totals = totalsOf({ workingCalls: 1 })
    const end = await totals.beginWork(neverAborted)
    const abort = new AbortController()
    const cancelled = totals.beginWork(abort.signal)
    const next = totals.beginWork(neverAborted)
    abort.abort(new Error('gone'))
    await expect(cancelled).rejects.toThrow('gone')
    end()
    ;(await next)()
    expect(used(totals, 'working_calls')).toBe(0)
  })

  it('loses no turn that comes while its call is cancelled', async () => {
    const totals = totalsOf({ workingCalls: 1 })
    const end = await totals.beginWork(neverAborted)
    const abort = new AbortController()
    const cancelled = totals.beginWork(abort.signal)
    const next = totals.beginWork(neverAborted)
    end()
    abort.abort(new Error('gone'))
    ;(await cancelled)()
    ;(await next)()
    expect(used(totals, 'working_calls')).toBe(0)
  })
})
