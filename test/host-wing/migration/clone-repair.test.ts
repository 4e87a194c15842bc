import type { Server } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { GetResumeResponse } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  EnsureInstanceRequest,
  type Instance,
  type Operation,
  SnapshotRequest,
  SuspendInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { guestSocket } from '../../../src/host/instance/machine/daemon-steps.ts'
import { encodeResponseFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { type Answer, startAgent } from '../../support/wing/fakes/fake-agent.ts'
import { ADMIN, tenant } from '../../support/wing/requests.ts'
import { SuspendedWing } from '../../support/wing/suspended-wing.ts'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
})

const steps = [
  { name: 'clock', state: 'done', durationMs: 2n },
  { name: 'ready', state: 'done', durationMs: 1n },
]

/** A machine with a tap is saved; an agent in its clone `c` ends the repair as `outcome` says. */
async function saved(outcome: () => 'ready' | 'failed' | Promise<'failed'>) {
  const wing = new SuspendedWing()
  const instances = await wing.daemon()
  await wing.makeWithTap(instances)
  const answer: Answer = async (socket, streamId) => {
    const told = GetResumeResponse.fromPartial({ state: await outcome(), steps })
    socket.write(encodeResponseFrame(streamId, GetResumeResponse.encode(told).finish()))
  }
  const own = { GetResume: answer }
  servers.push(await startAgent(guestSocket(wing.folderOf('web')), [], own))
  wing.atStep = async (operation, step) => {
    if (operation === 'import' && step === 'repair')
      servers.push(await startAgent(guestSocket(wing.folderOf('c')), [], own))
  }
  await instances.suspend(SuspendInstanceRequest.fromPartial({ key: 'web', name: 'one' }), ADMIN)
  return { wing, instances, own }
}

async function clone(instances: Instances): Promise<readonly Instance[]> {
  const request = CloneInstanceRequest.fromPartial({ saved: 'one', count: 1, name: 'c' })
  return await instances.clone(request, ADMIN, async () => {})
}

/** The daemon dies as it is about to tell the guest of a clone. Returns the next one. */
async function diedInRepair(wing: SuspendedWing, instances: Instances): Promise<Instances> {
  const { atStep } = wing
  wing.atStep = async (operation, step) => {
    await atStep(operation, step)
    if (step !== 'repair') return
    wing.isDead = true
    await new Promise(() => {})
  }
  void clone(instances).catch(() => {})
  await expect.poll(() => wing.isDead).toBe(true)
  wing.atStep = atStep
  await instances.close()
  return await wing.daemon()
}

describe('the tap of a clone', () => {
  const tapOf = ([instance]: readonly Instance[]) =>
    instance?.specification?.backends['lan-tap']?.tap?.interfaceName ?? ''

  /** Until its guest is ready, the clone has the addresses of the original. */
  const savedWithTap = async () => {
    const guest = await saved(() => {
      expect([...guest.wing.links.keys()]).toEqual(['lan0'])
      return 'ready'
    })
    return guest
  }

  it('is set up once its guest is ready', async () => {
    const { wing, instances } = await savedWithTap()
    const clones = await clone(instances)
    expect([...wing.links.keys()]).toEqual(['lan0', tapOf(clones)])
    expect(await wing.rows()).toContain('c/tap/lan-tap')
  })

  it('is set up by the next daemon, where the daemon has died before', async () => {
    const { wing, instances } = await savedWithTap()
    const next = await diedInRepair(wing, instances)
    const tap = tapOf([await next.get('c', ADMIN)])
    await expect.poll(() => [...wing.links.keys()], { timeout: 20_000 }).toEqual(['lan0', tap])
  })
})

describe('a clone that is asked for again', () => {
  it('is removed when its repair fails, before the call is answered', async () => {
    const both = Promise.withResolvers<'failed'>()
    let askers = 0
    // The next daemon repairs it by itself, too.
    const { wing, instances } = await saved(() => {
      askers += 1
      if (askers === 2) both.resolve('failed')
      return both.promise
    })
    const next = await diedInRepair(wing, instances)
    const left = await clone(next).catch((error) => ({ error, keys: next.list(ADMIN) }))
    expect(left).toEqual({
      error: expect.objectContaining({ message: expect.stringMatching(/its guest runs and is not ready/) }),
      keys: [],
    })
  })
})

describe('a clone that goes back to a snapshot with memory', () => {
  it('stays where its guest is not ready, however often it is told', async () => {
    let outcome: 'ready' | 'failed' = 'ready'
    const { wing, instances } = await saved(() => outcome)
    await clone(instances)
    const request = { key: 'c', name: 'one', memory: true }
    await instances.snapshot(SnapshotRequest.fromPartial(request), ADMIN)
    await instances.changeState({ key: 'c', change: Change.KILL, graceMs: 0 }, ADMIN)
    wing.atStep = async () => {}
    // Its tap has gone with its QEMU.
    wing.links.clear()
    outcome = 'failed'
    const call = { ...ADMIN, callKey: '/again' }
    const revert = (isRepeated: boolean) =>
      instances.revert({ key: 'c', name: 'one' }, async () => {}, { ...call, isRepeated })
    await expect(revert(false)).rejects.toThrow('its guest runs and is not ready')
    for (const again of [() => revert(true), () => clone(instances)]) {
      await again().catch(() => {})
      expect(instances.list(ADMIN).map(({ properties }) => properties?.key)).toEqual(['c'])
    }
    expect(wing.holders.qemu.isRunning).toBe(true)
  })
})

describe('the timeline of an operation', () => {
  const stepsOf = (operation: Operation | undefined) =>
    operation?.steps.map(({ guest, name, state }) => `${guest ? 'guest ' : ''}${name} ${state}`)

  it('is kept with what is saved, and with the instance of it, also by the next daemon', async () => {
    const { wing, instances } = await saved(() => 'ready')
    const [machine] = await instances.listSaved(ADMIN)
    await clone(instances)
    await instances.close()
    const next = await wing.daemon()
    const { operations } = await next.get('c', ADMIN)
    expect(operations.map(({ failure, kind }) => [kind, failure])).toEqual([
      ['suspend', ''],
      ['clone', ''],
    ])
    const [suspended, cloned] = operations
    expect(suspended).toEqual(machine?.operation)
    expect(stepsOf(suspended)).toEqual(
      ['detach', 'unplug', 'stop', 'folder', 'memory', 'devices', 'disks', 'rings', 'manifest'].map(
        (name) => `${name} done`,
      ),
    )
    expect(stepsOf(cloned)).toEqual([
      ...['check', 'files', 'machine', 'devices', 'streams', 'plug', 'cont', 'commit', 'repair'].map(
        (name) => `${name} done`,
      ),
      'guest clock done',
      'guest ready done',
    ])
    for (const { durationUs, steps, stoppedUs, waitingUs } of operations) {
      expect(waitingUs).toBeGreaterThanOrEqual(stoppedUs)
      expect(stoppedUs).toBeGreaterThan(0n)
      for (const step of steps) expect(step.startUs + step.durationUs).toBeLessThanOrEqual(durationUs)
    }
    const metrics = next.metrics() + instances.metrics()
    for (const kind of ['suspend', 'clone'])
      expect(metrics).toContain(`microvm_guest_stopped_seconds_count{operation="${kind}"} 1`)
  })

  it('tells of a resume for how long the guest stood still since its suspend', async () => {
    const { wing, instances, own } = await saved(() => 'ready')
    wing.atStep = async (operation, step) => {
      if (operation === 'import' && step === 'repair')
        servers.push(await startAgent(guestSocket(wing.folderOf('web')), [], own))
    }
    // It has gone with its QEMU.
    wing.links.clear()
    const [machine] = await instances.listSaved(ADMIN)
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, saved: { name: 'one' } })
    const { operations } = await instances.ensure(request, ADMIN)
    const [suspended, resumed] = operations
    expect([suspended?.kind, resumed?.kind]).toEqual(['suspend', 'resume'])
    expect(resumed?.stoppedUs).toBeGreaterThan(machine?.operation?.stoppedUs ?? 0n)
  })

  it('of a suspend that fails has the reason, and when the guest ran again', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.makeWithTap(instances)
    wing.atStep = async (_, step) => {
      if (step === 'memory') throw new Error('asked for')
    }
    const request = SuspendInstanceRequest.fromPartial({ key: 'web', name: 'one', withoutAgent: true })
    await expect(instances.suspend(request, ADMIN)).rejects.toThrow('asked for')
    const [operation, ...others] = (await instances.get('web', ADMIN)).operations
    expect(others).toEqual([])
    expect(operation).toMatchObject({ kind: 'suspend', failure: expect.stringContaining('asked for') })
    expect(operation?.stoppedUs).toBeGreaterThan(0n)
    expect(operation?.stoppedUs).toBeLessThan(operation?.durationUs ?? 0n)
  })
})

describe('a machine that is not saved', () => {
  it('is told from the instance of its name that is there', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.makeWithTap(instances)
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, saved: { name: 'web' } })
    const text = 'web: no machine is saved under this name, and instance web runs'
    await expect(instances.ensure(request, ADMIN)).rejects.toMatchObject({ code: 'NOT_FOUND', message: text })
    // Another tenant is not told what there is.
    await expect(instances.ensure(request, tenant('anne'))).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
  })
})
