import { describe, expect, it } from 'vitest'
import { Timings } from '../../../src/microvm/run/reporter.ts'

function timingsAt(...times: number[]): Timings {
  const queue = [...times]
  return new Timings(() => queue.shift() ?? 0)
}

describe('Timings', () => {
  it('measures each phase from the end of the one before', () => {
    const timings = timingsAt(100, 1100, 1350)
    timings.end('kernel')
    timings.end('agent')
    timings.end('kernel')
    expect(timings.milliseconds).toEqual({ kernel: 1000, agent: 250, total: 1250 })
    expect(JSON.parse(timings.json())).toEqual(timings.milliseconds)
  })

  it('leaves out a phase that did not happen', () => {
    const timings = timingsAt(0, 10)
    timings.end('create')
    expect(timings.table()).toBe('  create       10 ms\n  total        10 ms\n')
  })
})
