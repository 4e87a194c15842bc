import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { RunLeaseUpdate, RunLeaseUpdate_Status as Status } from '../../../src/gen/vm.ts'
import { endOfGrant, LeaseKeeper } from '../../../src/host/instance/leases/lease-keeper.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'

const TTL_MS = 10_000
const MS = 1_000_000n

/** A controller, whose answers the test gives. */
class Bench {
  readonly clock = new FakeClock()
  readonly requests: {
    readonly nonce: Uint8Array
    readonly sentNs: bigint
    readonly answer: (update?: Partial<RunLeaseUpdate>) => void
    readonly fail: () => void
    readonly signal: AbortSignal
  }[] = []
  /** What the machine's end was moved to, and when. */
  readonly ends: { readonly untilNs: bigint; readonly atNs: bigint }[] = []
  readonly reasons: string[] = []
  extendError: Error | undefined
  readonly keeper: LeaseKeeper

  constructor(untilNs?: bigint) {
    const { clock } = this
    this.keeper = new LeaseKeeper(
      {
        clock,
        renew: (nonce, signal) =>
          new Promise((resolve, reject) => {
            this.requests.push({
              nonce,
              signal,
              sentNs: clock.boottimeNs(),
              answer: (update) => resolve(granted(nonce, update)),
              fail: () => reject(new Error('UNAVAILABLE')),
            })
          }),
        extend: async (end) => {
          if (this.extendError) throw this.extendError
          this.ends.push({ untilNs: end, atNs: clock.boottimeNs() })
        },
        onEnded: (reason) => this.reasons.push(reason),
        log: silentLogger(),
      },
      untilNs,
    )
  }

  get last() {
    return this.requests.at(-1) ?? expect.fail('no request')
  }

  async pass(ms: number, stepMs = 50): Promise<void> {
    for (let left = ms; left > 0; left -= stepMs) {
      this.clock.advance(Math.min(stepMs, left))
      await settled()
    }
  }

  /** A keeper with a first grant. */
  static async keeping(): Promise<Bench> {
    const bench = new Bench()
    const acquired = bench.keeper.acquire(neverAborted)
    await settled()
    bench.last.answer()
    await acquired
    void bench.keeper.keep()
    await settled()
    return bench
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await setImmediate()
}

function granted(nonce: Uint8Array, update: Partial<RunLeaseUpdate> = {}): RunLeaseUpdate {
  return RunLeaseUpdate.fromPartial({
    status: Status.STATUS_OK,
    epoch: 3n,
    ttlMs: BigInt(TTL_MS),
    nonce,
    ...update,
  })
}

describe('LeaseKeeper', () => {
  it('counts a grant from the sending of its request, with a margin, never from its receipt', async () => {
    const bench = new Bench()
    const acquired = bench.keeper.acquire(neverAborted)
    await settled()
    const { sentNs } = bench.last
    await bench.pass(4000)
    bench.last.answer()
    await acquired
    expect(bench.ends.map(({ untilNs }) => untilNs)).toEqual([endOfGrant(sentNs, BigInt(TTL_MS))])
    expect(bench.keeper.untilNs).toBe(sentNs + 9850n * MS)
    expect(bench.keeper.epoch).toBe(3n)
  })

  it('renews three times in the time of a grant', async () => {
    const bench = await Bench.keeping()
    for (let count = 0; count < 6; count++) {
      bench.last.answer()
      await settled()
      await bench.pass(TTL_MS / 3 + 1)
    }
    const sent = bench.requests.slice(1).map((request) => Number(request.sentNs / MS))
    for (const [index, time] of sent.entries()) {
      if (index > 0) expect(time - (sent[index - 1] ?? 0)).toBeLessThan(TTL_MS / 3 + 100)
    }
    expect(sent.length).toBeGreaterThanOrEqual(6)
    expect(bench.reasons).toEqual([])
  })

  it('ends when no renewal succeeds, at the end of the last grant', async () => {
    const bench = await Bench.keeping()
    const { untilNs } = bench.keeper
    while (bench.reasons.length === 0) {
      for (const request of bench.requests) request.fail()
      await bench.pass(50)
      expect(bench.clock.boottimeNs()).toBeLessThan(untilNs + 1000n * MS)
    }
    expect(bench.clock.boottimeNs()).toBeGreaterThanOrEqual(untilNs)
    expect(bench.reasons).toEqual(['the lease has ended'])
    // Pauses grow to a third of the time of a grant.
    expect(bench.requests.length).toBeLessThan(12)
    expect(bench.ends).toHaveLength(1)
  })

  it('has no valid lease when each answer comes after twice its time', async () => {
    const bench = new Bench()
    const over = new AbortController()
    const acquired = bench.keeper.acquire(over.signal)
    const due: { readonly atNs: bigint; readonly answer: () => void }[] = []
    let seen = 0
    for (let passed = 0; passed < 8 * TTL_MS; passed += 100) {
      for (; seen < bench.requests.length; seen++) {
        const { sentNs, answer } = bench.requests[seen] ?? expect.fail()
        due.push({ atNs: sentNs + BigInt(2 * TTL_MS) * MS, answer })
      }
      for (const { atNs, answer } of due) if (atNs <= bench.clock.boottimeNs()) answer()
      await bench.pass(100, 100)
    }
    expect(bench.ends).toEqual([])
    expect(bench.requests.length).toBeGreaterThan(8)
    expect(bench.requests.slice(0, -1).every(({ signal }) => signal.aborted)).toBe(true)
    over.abort(new Error('over'))
    await expect(acquired).rejects.toThrow('over')
  })

  it.each<readonly [string, Partial<RunLeaseUpdate>]>([
    ['the nonce of another request', { nonce: Buffer.from('00000000', 'latin1') }],
    ['no nonce', { nonce: new Uint8Array() }],
    ['a longer nonce', { nonce: new Uint8Array(9) }],
    ['no time', { ttlMs: 0n }],
    ['a time of 2^63', { ttlMs: 2n ** 63n }],
    ['a time of 2^64 - 1', { ttlMs: 2n ** 64n - 1n }],
    ['a time that has passed with its margin', { ttlMs: 50n }],
    ['an earlier epoch', { epoch: 2n }],
    ['no epoch', { epoch: 0n }],
    ['no status', { status: Status.STATUS_UNKNOWN }],
    ['a status of the future', { status: 7 as Status }],
  ])('ignores a grant with %s', async (_, update) => {
    const bench = await Bench.keeping()
    const { untilNs } = bench.keeper
    bench.last.answer(update)
    await bench.pass(50)
    expect([bench.ends.length, bench.keeper.untilNs, bench.reasons]).toEqual([1, untilNs, []])
    // It asks again soon.
    await bench.pass(200)
    bench.last.answer()
    await settled()
    expect(bench.ends).toHaveLength(2)
  })

  it('ignores the answer to a request once it has asked anew', async () => {
    const bench = await Bench.keeping()
    const slow = bench.last
    while (bench.last === slow) await bench.pass(50)
    slow.answer()
    await settled()
    expect(bench.ends).toHaveLength(1)
    bench.last.answer({ nonce: slow.nonce })
    await settled()
    expect(bench.ends).toHaveLength(1)
  })

  it('ends the machine at once when another hypervisor runs it', async () => {
    const bench = await Bench.keeping()
    bench.last.answer({ status: Status.STATUS_TERMINATE, nonce: new Uint8Array() })
    await settled()
    expect(bench.reasons).toEqual(['terminated by the controller'])
    const count = bench.requests.length
    await bench.pass(TTL_MS * 2)
    expect([bench.requests.length, bench.reasons.length]).toEqual([count, 1])
  })

  it('does not begin without a grant', async () => {
    const bench = new Bench()
    const acquired = bench.keeper.acquire(neverAborted)
    await settled()
    bench.last.answer({ status: Status.STATUS_TERMINATE })
    await expect(acquired).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    expect([bench.ends, bench.reasons]).toEqual([[], []])
  })

  it('keeps the end that the holder has, when it cannot be moved', async () => {
    const bench = await Bench.keeping()
    const { untilNs } = bench.keeper
    bench.extendError = new Error('the holder does not answer')
    while (bench.reasons.length === 0) {
      bench.last.answer()
      await bench.pass(50)
    }
    expect(bench.keeper.untilNs).toBe(untilNs)
    expect(Number((bench.clock.boottimeNs() - untilNs) / MS)).toBeLessThan(100)
  })

  it('goes on with the lease of an earlier daemon, and knows one that has ended', async () => {
    const bench = new Bench(new FakeClock().boottimeNs() + 3000n * MS)
    void bench.keeper.keep()
    await settled()
    bench.last.answer()
    await settled()
    expect(bench.ends).toHaveLength(1)
    bench.keeper.close()
    const late = new Bench(1n)
    await late.keeper.keep()
    expect([late.reasons, late.requests]).toEqual([['the lease has ended'], []])
  })

  it('waits for a grant that is asked for from now on, beside its renewals', async () => {
    const bench = await Bench.keeping()
    const before = bench.last
    await bench.pass(50)
    let isRenewed = false
    const renewed = bench.keeper.renewed(neverAborted).then(() => {
      isRenewed = true
    })
    await settled()
    before.answer()
    await settled()
    expect([isRenewed, bench.ends.length]).toEqual([false, 1])
    bench.last.answer()
    await renewed
    expect(bench.ends).toHaveLength(2)
    bench.keeper.close()
  })

  it('asks again for that grant when a renewal has come between', async () => {
    const bench = await Bench.keeping()
    const before = bench.last
    await bench.pass(50)
    const renewed = bench.keeper.renewed(neverAborted)
    await settled()
    const asked = bench.last
    before.fail()
    while (bench.last === asked) await bench.pass(50)
    bench.last.answer()
    asked.answer()
    await settled()
    const count = bench.requests.length
    while (bench.requests.length === count) await bench.pass(50)
    bench.last.answer()
    await renewed
    expect(bench.ends).toHaveLength(3)
    bench.keeper.close()
  })

  it('leaves the machine its lease when it is closed', async () => {
    const bench = await Bench.keeping()
    bench.keeper.close()
    await bench.pass(TTL_MS * 2)
    expect(bench.reasons).toEqual([])
    expect(bench.clock.sleeping).toBe(0)
  })

  it('ends soon after its end when the process was stopped', async () => {
    const bench = await Bench.keeping()
    bench.clock.advance(TTL_MS * 5)
    bench.last.answer()
    await bench.pass(200)
    expect(bench.reasons).toEqual(['the lease has ended'])
    expect(bench.ends).toHaveLength(1)
  })
})
