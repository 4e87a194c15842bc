import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../../scripts/test/instances-run.ts'
import { AgentError } from '../../../../../src/base/errors.ts'
import type { BulkProgress } from '../../../../../src/host/migration/bulk/bulk.ts'
import { undoBulk } from '../../../../../src/host/migration/bulk/undo.ts'
import { TestHolders } from '../../../../support/host/test-holder.ts'
import { randomFrom } from '../../../../support/kills/random.ts'
import {
  type BulkMachine,
  checkNumbers,
  startBulkMachine,
} from '../../../../support/wing/moves/bulk-machines.ts'
import {
  checkGoesOn,
  cuttingProxy,
  mountRoom,
  openSource,
  SOURCE_STEPS,
  startTarget,
} from '../../../../support/wing/moves/bulk-moves.ts'

const holders = new TestHolders()

const { [INSTANCES.lives]: lives, [INSTANCES.seed]: given } = process.env
const seed = Number(given ?? Math.floor(Math.random() * 0x7fffffff))
const random = randomFrom(seed)

/** `npm run instances` takes all, and this group some, in their order. */
function some<Each>(all: readonly Each[], count = 1): readonly Each[] {
  if (lives !== undefined) return all
  const chosen = all.map((_, index) => ({ index, by: random() })).toSorted((one, other) => one.by - other.by)
  const kept = new Set(chosen.slice(0, count).map(({ index }) => index))
  return all.filter((_, index) => kept.has(index))
}

/** In a step of the source, or after it. */
const MOMENTS = ['in copyDisks', 'copyDisks', 'in sendMemory', 'sendMemory', 'endDisks', 'endMemory'] as const
type Moment = (typeof MOMENTS)[number]

/** Slow enough to be met in the middle. */
const SLOWLY = { bandwidthBytesPerSecond: 8 * 2 ** 20, stallMs: 4000 }

/** Brings a new move to a moment. `next` is what the source waits for, or does next. */
async function moveUntil(source: BulkMachine, moment: Moment) {
  const { incoming, target } = await startTarget(holders)
  const cancel = new AbortController()
  const seen = { disks: Promise.withResolvers<void>(), memory: Promise.withResolvers<void>() }
  const onProgress = (progress: BulkProgress) => seen['disks' in progress ? 'disks' : 'memory'].resolve()
  const outgoing = await openSource(source, incoming, { settings: SLOWLY, signal: cancel.signal, onProgress })
  for (const [index, step] of SOURCE_STEPS.entries()) {
    const run = outgoing[step]()
    run.catch(() => {})
    if (moment === `in ${step}`) {
      await seen[step === 'copyDisks' ? 'disks' : 'memory'].promise
      return { cancel, incoming, next: () => run, outgoing, target }
    }
    await run
    const following = SOURCE_STEPS[index + 1]
    const next = () =>
      following === undefined ? Promise.reject(new Error('the last')) : outgoing[following]()
    if (moment === step) return { cancel, incoming, next, outgoing, target }
  }
  throw new Error(`no moment ${moment}`)
}

const CUT_OFF = { code: /^(FAILED_PRECONDITION|UNAVAILABLE)$/ }

/** On a machine with much to do. */
const LIMIT = { timeout: 240_000 }

describe(`a move that fails (seed ${seed})`, () => {
  it('is undone at each moment when it is cancelled', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    for (const moment of some(MOMENTS)) {
      const { cancel, incoming, next, outgoing } = await moveUntil(source, moment)
      const reason = new AgentError('CANCELLED', 'no move any more')
      cancel.abort(reason)
      if (moment !== 'endMemory') await expect(next(), moment).rejects.toBe(reason)
      await outgoing.close()
      await checkGoesOn(source)
      await incoming.close()
    }
  })

  it('is undone at each moment when the QEMU of the target is killed', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    for (const moment of some(MOMENTS)) {
      const { incoming, next, outgoing, target } = await moveUntil(source, moment)
      if (moment === 'endMemory') await incoming.arrived
      process.kill(target.pid, 'SIGKILL')
      if (moment !== 'endMemory') await expect(next(), moment).rejects.toMatchObject(CUT_OFF)
      await outgoing.close()
      await checkGoesOn(source)
      await incoming.close()
    }
  })

  it('is undone at each moment within its bound when the QEMU of the target hangs', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    for (const moment of some(MOMENTS.slice(0, -1))) {
      const { incoming, next, outgoing, target } = await moveUntil(source, moment)
      process.kill(target.pid, 'SIGSTOP')
      await expect(next(), moment).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      await outgoing.close()
      await checkGoesOn(source)
      process.kill(target.pid, 'SIGKILL')
      await incoming.close()
    }
  })

  it.each(['disks', 'memory'] as const)(
    'is undone within its bound when the target hangs before its %s',
    LIMIT,
    async (what) => {
      const source = await startBulkMachine(holders)
      const { incoming, target } = await startTarget(holders)
      const open = () =>
        openSource(source, what === 'disks' ? incoming : { disks: undefined, memory: incoming.memory }, {
          settings: { stallMs: 3000 },
        })
      const outgoing = what === 'memory' ? await open() : undefined
      process.kill(target.pid, 'SIGSTOP')
      await expect(outgoing?.sendMemory() ?? open()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      await outgoing?.close()
      await checkGoesOn(source)
      process.kill(target.pid, 'SIGKILL')
      await incoming.close()
    },
  )

  it('is undone at each moment by another daemon, which knows nothing of it, and again', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    for (const moment of some(MOMENTS)) {
      const { incoming, next, outgoing } = await moveUntil(source, moment)
      if (moment.startsWith('in')) next().catch(() => {})
      // What is left of the first daemon.
      outgoing.finish()
      await undoBulk(source, { source: { wasRunning: true } })
      await checkGoesOn(source)
      await undoBulk(source, { source: { wasRunning: true } })
      await incoming.close()
    }
  })

  it('leaves nothing at the target when the QEMU of the source is killed', LIMIT, async () => {
    for (const moment of ['in copyDisks', 'in sendMemory'] as const) {
      const source = await startBulkMachine(holders)
      const { incoming, next, outgoing, target } = await moveUntil(source, moment)
      process.kill(source.pid, 'SIGKILL')
      await expect(next()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      outgoing.finish()
      if (moment === 'in sendMemory')
        await expect(incoming.arrived).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
      await incoming.close()
      expect(target.qmp.isClosed).toBe(moment === 'in sendMemory')
    }
  })

  it('tells that the target has no room, and when the guest is too fast for the wire', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    const { incoming } = await startTarget(holders, { makeRoom: (folder) => mountRoom(folder, 3) })
    const full = await openSource(source, incoming)
    await expect(full.copyDisks()).rejects.toMatchObject({
      ...{ code: 'RESOURCE_EXHAUSTED', message: 'disk disk: no room at the target' },
    })
    await full.close()
    await checkGoesOn(source)
    const settings = { bandwidthBytesPerSecond: 2 ** 20, memoryMs: 2000, throttlePercent: 0 }
    const fast = await openSource(source, { disks: undefined, memory: incoming.memory }, { settings })
    await expect(fast.sendMemory()).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: expect.stringMatching(
        /^memory: not moved in 2000 ms: the guest changes .* MiB.s, the wire carries /,
      ),
    })
    await fast.close()
    await checkGoesOn(source)
    await incoming.close()
  })
})

/**
 * Where a stream is cut: in the greeting, the handshake of TLS, the negotiation, a header, and what follows. At 600 QEMU would read half a
 * record of the handshake, and at 1500 could not send its last one: its version 7.2 would wait for ever.
 */
const CUTS = [0, 1, 20, 300, 600, 1500, 3000, 20_000, 3_000_000]
/** The last byte of the handshake is before this one. */
const HANDSHAKE_BYTES = 2200

describe(`a stream that is cut (seed ${seed})`, () => {
  it('of disks is undone, and the next one succeeds', { timeout: 900_000 }, async () => {
    const source = await startBulkMachine(holders)
    const { incoming } = await startTarget(holders)
    const later = CUTS.filter((bytes) => bytes >= HANDSHAKE_BYTES)
    const cuts = lives === undefined ? some(CUTS, 2) : [...Array(HANDSHAKE_BYTES).keys(), ...later]
    for (const bytes of cuts) {
      const proxy = await cuttingProxy(incoming.disks, bytes)
      const endpoints = { ...incoming, disks: proxy.endpoint }
      const opened = openSource(source, endpoints, { settings: { stallMs: 5000 } })
      const copied = opened.then((outgoing) => outgoing.copyDisks())
      await expect(copied, `${bytes} bytes`).rejects.toMatchObject({
        code: /^(FAILED_PRECONDITION|UNAVAILABLE)$/,
      })
      await opened.then(
        (outgoing) => outgoing.close(),
        () => {},
      )
      proxy.close()
      await checkGoesOn(source)
    }
    // Each move has a target of its own.
    const next = await startTarget(holders)
    const { target } = next
    const outgoing = await openSource(source, next.incoming)
    for (const step of SOURCE_STEPS) await outgoing[step]()
    await next.incoming.arrived
    await next.incoming.endDisks()
    outgoing.finish()
    expect(readFileSync(target.path).equals(readFileSync(source.path))).toBe(true)
    await checkNumbers(target)
  })

  it('of memory is undone', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    for (const bytes of some(CUTS, 2)) {
      const { incoming } = await startTarget(holders)
      const proxy = await cuttingProxy(incoming.memory, bytes)
      const outgoing = await openSource(source, { disks: undefined, memory: proxy.endpoint })
      const sent = outgoing.sendMemory().then(() => outgoing.endMemory())
      await expect(sent, `${bytes} bytes`).rejects.toMatchObject({
        code: /^(FAILED_PRECONDITION|UNAVAILABLE)$/,
      })
      await outgoing.close()
      proxy.close()
      await checkGoesOn(source)
      await incoming.close()
    }
  })
})
