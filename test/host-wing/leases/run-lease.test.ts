import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { abortable } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { RunLeaseUpdate_Status as Status } from '../../../src/gen/vm.ts'
import { followRunLease } from '../../../src/host/instance/leases/run-lease.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'

type Script = readonly (Status | Error)[]

/** Streams that say what the scripts have, one after the other; the last one stays open. */
function follow(...scripts: readonly Script[]) {
  const clock = new FakeClock()
  const over = new AbortController()
  const openedMs: number[] = []
  let terminated = 0
  async function* open(signal: AbortSignal) {
    const script = scripts[openedMs.length]
    openedMs.push(clock.monotonicMs() - 1000)
    for (const step of script ?? []) {
      if (step instanceof Error) throw step
      yield { status: step }
    }
    if (script === undefined || script === scripts.at(-1)) await abortable(new Promise(() => {}), signal)
  }
  const ended = followRunLease(
    { clock, open, onTerminate: () => terminated++, log: silentLogger() },
    over.signal,
  )
  const pass = async (ms: number) => {
    for (let left = ms; left > 0; left -= 100) {
      for (let turn = 0; turn < 5; turn++) await setImmediate()
      clock.advance(100)
    }
    for (let turn = 0; turn < 5; turn++) await setImmediate()
  }
  return { ended, over, openedMs, pass, terminated: () => terminated }
}

const { STATUS_OK, STATUS_TERMINATE, STATUS_UNKNOWN } = Status
const FUTURE = 9 as Status
const unavailable = new Error('UNAVAILABLE')

describe('followRunLease', () => {
  it('ends with STATUS_TERMINATE, and ignores what it does not know', async () => {
    const run = follow([STATUS_OK, STATUS_UNKNOWN, FUTURE, STATUS_OK, STATUS_TERMINATE])
    await run.ended
    expect([run.terminated(), run.openedMs]).toEqual([1, [0]])
  })

  it('opens the stream again after growing pauses, which are bounded', async () => {
    const run = follow(...Array.from({ length: 12 }, () => [unavailable]), [STATUS_TERMINATE])
    await run.pass(400_000)
    await run.ended
    const pauses = run.openedMs.slice(1).map((ms, index) => ms - (run.openedMs[index] ?? 0))
    expect(pauses).toEqual([200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000, 30_000])
    expect(run.terminated()).toBe(1)
  })

  it('begins with a short pause after a stream that has said something', async () => {
    const run = follow([unavailable], [unavailable], [STATUS_OK], [STATUS_OK, unavailable], [])
    await run.pass(5000)
    expect(run.openedMs).toEqual([0, 200, 600, 800, 1000])
    run.over.abort()
    await run.ended
    expect(run.terminated()).toBe(0)
  })

  it('says nothing however long the controller is away', async () => {
    const run = follow(...Array.from({ length: 400 }, () => [unavailable]))
    await run.pass(600_000)
    expect(run.terminated()).toBe(0)
    run.over.abort()
    await run.ended
  })
})
