import { expect, it } from 'vitest'
import { abortable, neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { LeaseMode } from '../../../src/gen/vm.ts'
import type { Holder } from '../../../src/host/instance/holder/holder.ts'
import { MachineLease } from '../../../src/host/instance/leases/machine-lease.ts'
import { FakeLeaseController } from '../../support/wing/fakes/fake-lease-controller.ts'

/** Ends with its signal. */
const sleep = (_: number, signal: AbortSignal) => abortable(new Promise<never>(() => {}), signal)

type Held = Awaited<ReturnType<Holder['heldLease']>>

/** The lease of a machine that is taken in again, once its holder has told what it holds. */
function lease(leaseMode: LeaseMode = LeaseMode.LM_FULL_LEASES) {
  const controller = new FakeLeaseController()
  controller.ttlMs = 15_000n
  const filters = { check: async () => {}, apply: async () => {}, run: async () => {} }
  const parts = {
    ...{ isOnItsWay: () => true, settings: { leaseMode }, terminate: () => {} },
    us: () => ({ vmName: 'web', namespace: 'default', podName: 'a/web', runId: 1n }),
    clock: { boottimeNs: () => 1n, sleep, startTimer: () => () => {} },
    ...{ controller, filters, log: silentLogger() },
  }
  const held = Promise.withResolvers<Held>()
  const ends: bigint[] = []
  const holder = {
    heldLease: () => held.promise,
    setLease: async (untilNs: bigint) => void ends.push(untilNs),
  }
  // What a lease needs of a holder.
  const taken = new MachineLease(parts, { isRegistered: true })
  return {
    controller,
    taken,
    ends,
    tell: held.resolve,
    takeIn: () => taken.takeIn(holder as unknown as Holder, []),
  }
}

it('a machine that is taken back waits for the holder, and for a grant of its new run', async () => {
  const { ends, takeIn, taken, tell } = lease()
  const takenIn = takeIn()
  const renewed = taken.renewed(neverAborted)
  tell({ untilNs: 10n ** 12n, hasEnded: false })
  await Promise.all([takenIn, renewed])
  expect(ends.length).toBeGreaterThan(0)
  taken.close()
})

it.each(['before', 'meanwhile'])('a machine that has ended %s waits for none', async (when) => {
  const { controller, takeIn, taken, tell } = lease()
  tell({ untilNs: 10n ** 12n, hasEnded: false })
  await takeIn()
  controller.isAway = true
  if (when === 'before') taken.machineHasEnded()
  const renewed = taken.renewed(neverAborted)
  taken.machineHasEnded()
  await expect(renewed).resolves.toBeUndefined()
})

it('a machine whose lease nobody keeps is not taken back', async () => {
  const { takeIn, taken, tell } = lease()
  tell(undefined)
  await takeIn()
  await expect(taken.renewed(neverAborted)).rejects.toThrow('lease: none is kept here')
})

it('a machine without grants waits for none', async () => {
  await expect(lease(LeaseMode.LM_STORAGE_LOCKING).taken.renewed(neverAborted)).resolves.toBeUndefined()
})
