import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { LeaseMode } from '../../../src/gen/vm.ts'
import type { HeldLease, Holder } from '../../../src/host/instance/holder/holder.ts'
import { MachineLease } from '../../../src/host/instance/leases/machine-lease.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { FakeLeaseController } from '../../support/wing/fakes/fake-lease-controller.ts'

const TTL_MS = 9000
const MS = 1_000_000n

/** The lease of a machine, with a controller in memory and a holder whose answer the test gives. */
class Bench {
  readonly clock = new FakeClock()
  readonly controller = new FakeLeaseController()
  readonly held = Promise.withResolvers<HeldLease>()
  readonly reasons: string[] = []
  /** What the machine's end was moved to. */
  readonly ends: bigint[] = []
  isOnItsWay = false
  readonly lease: MachineLease
  readonly holder: Holder

  constructor(leaseMode: LeaseMode = LeaseMode.LM_FULL_LEASES) {
    this.controller.ttlMs = BigInt(TTL_MS)
    const { clock, controller } = this
    const filters = { check: async () => {}, apply: async () => {}, run: async () => {} }
    this.lease = new MachineLease(
      {
        us: () => ({ vmName: 'web', namespace: 'default', podName: 'a/web', runId: 2n }),
        isOnItsWay: () => this.isOnItsWay,
        settings: { leaseMode },
        terminate: (reason) => this.reasons.push(reason),
        ...{ clock, controller, filters, log: silentLogger() },
      },
      { isRegistered: true },
    )
    const setLease = async (untilNs: bigint) => void this.ends.push(untilNs)
    this.holder = { heldLease: () => this.held.promise, setLease } as Partial<Holder> as Holder
  }

  /** The holder tells of a lease with this much left. */
  tellHeld(leftMs: number): void {
    this.held.resolve({ untilNs: this.clock.boottimeNs() + BigInt(leftMs) * MS, hasEnded: false })
  }

  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 50) {
      this.clock.advance(50)
      await settled()
    }
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await setImmediate()
}

describe('a lease that an earlier daemon has kept', () => {
  it('has a grant of the present run only once it was taken in', async () => {
    const bench = new Bench()
    const takenIn = bench.lease.takeIn(bench.holder, [])
    const renewed = bench.lease.renewed(neverAborted).then(() => bench.ends.length)
    await settled()
    bench.tellHeld(5000)
    await takenIn
    expect(await renewed).toBeGreaterThan(0)
    bench.lease.close()
  })

  it('has none when the holder does not tell of it', async () => {
    const bench = new Bench()
    const takenIn = bench.lease.takeIn(bench.holder, [])
    const renewed = bench.lease.renewed(neverAborted)
    bench.held.reject(new AgentError('UNAVAILABLE', 'no answer'))
    await expect(takenIn).rejects.toThrow('no answer')
    await expect(renewed).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  it('is waited for until the caller gives up', async () => {
    const bench = new Bench()
    void bench.lease.takeIn(bench.holder, [])
    const reason = new Error('given up')
    await expect(bench.lease.renewed(AbortSignal.abort(reason))).rejects.toBe(reason)
  })

  it('is not wanted of a machine without grants', async () => {
    const { lease } = new Bench(LeaseMode.LM_STORAGE_LOCKING)
    await expect(lease.renewed(neverAborted)).resolves.toBeUndefined()
  })
})

describe('a machine on its way', () => {
  it('is not ended by what controllers say, and ends with its lease', async () => {
    const bench = new Bench()
    await bench.lease.acquire(bench.holder, neverAborted)
    bench.isOnItsWay = true
    bench.controller.isTaken = true
    bench.lease.follow()
    await bench.pass(TTL_MS - 1000)
    expect([bench.reasons, bench.controller.streams]).toEqual([[], 0])
    await bench.pass(1000)
    expect(bench.reasons).toEqual(['the lease has ended'])
    bench.lease.close()
  })

  it('is followed once it has come', async () => {
    const bench = new Bench()
    await bench.lease.acquire(bench.holder, neverAborted)
    bench.isOnItsWay = true
    bench.controller.isTaken = true
    bench.lease.follow()
    await bench.pass(1000)
    bench.isOnItsWay = false
    await bench.pass(TTL_MS / 3)
    expect(bench.reasons).toEqual(['terminated by the controller'])
    bench.lease.close()
  })
})

describe('a machine that has ended', () => {
  it('has not ended with a lease that was not granted yet', async () => {
    const bench = new Bench()
    bench.controller.isAway = true
    const acquired = bench.lease.acquire(bench.holder, neverAborted)
    await settled()
    bench.lease.machineHasEnded()
    expect(bench.reasons).toEqual([])
    await expect(acquired).rejects.toMatchObject({ code: 'CANCELLED' })
  })

  it.each([
    ['with', 2000, ['the lease has ended']],
    ['before', 500, []],
  ])('has ended %s the lease that was taken in', async (_, passedMs, reasons) => {
    const bench = new Bench()
    bench.controller.isAway = true
    bench.tellHeld(1000)
    await bench.lease.takeIn(bench.holder, [])
    // Nothing else runs in between.
    bench.clock.advance(passedMs)
    bench.lease.machineHasEnded()
    expect(bench.reasons).toEqual(reasons)
  })
})
