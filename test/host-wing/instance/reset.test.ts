import { mkdirSync, readdirSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ChangeStateRequest_Change as Change, State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Caller, Instances } from '../../../src/host/instance/instances.ts'
import { mortalRegistry } from '../../support/wing/deaths/mortal-registry.ts'
import { ADMIN, ensureRequest } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const change = (instances: Instances, to: Change, caller: Caller = ADMIN) =>
  instances.changeState({ key: 'web', change: to, graceMs: 0 }, caller)

const KEYED: Caller = { ...ADMIN, callKey: '/again', isRepeated: false }

async function running(wing: FakeWing): Promise<Instances> {
  const instances = await wing.open()
  await instances.ensure(ensureRequest('web'), ADMIN)
  await change(instances, Change.RUN)
  return instances
}

describe('a reset', () => {
  it.each([
    [Change.RUN, State.RUNNING],
    [Change.PAUSE, State.PAUSED],
  ])('begins another boot and keeps QEMU and the state (%s)', async (to, state) => {
    const wing = new FakeWing()
    const instances = await running(wing)
    const before = await change(instances, to)
    const after = await change(instances, Change.RESET)
    expect(after).toMatchObject({ state, qemuPid: before.qemuPid, holderPid: before.holderPid })
    expect(after.bootId).not.toBe(before.bootId)
    expect([wing.holders.qemu.resets, wing.holders.qemu.isRunning]).toEqual([1, to === Change.RUN])
    expect(await wing.rows()).not.toContainEqual(expect.stringContaining('reset'))
  })

  it.each(['before', 'after'] as const)(
    'with a key happens once, also when the daemon dies %s any of its writes',
    async (when) => {
      let commit = 1
      for (; await diesInReset(commit, when); commit++) expect(commit).toBeLessThan(20)
      expect(commit).toBeGreaterThan(3)
    },
  )

  it('with a key happens when it is repeated after a failure', async () => {
    const wing = new FakeWing()
    const instances = await running(wing)
    wing.holders.qemu.failures.set('system_reset', 'not now')
    await expect(change(instances, Change.RESET, KEYED)).rejects.toThrow('not now')
    expect(wing.holders.qemu.isRunning).toBe(true)
    wing.holders.qemu.failures.clear()
    await change(instances, Change.RESET, { ...KEYED, isRepeated: true })
    await change(instances, Change.RESET, { ...KEYED, isRepeated: true })
    expect(wing.holders.qemu.resets).toBe(1)
  })

  it('with a key does not reset a machine that was made after it had begun', async () => {
    const wing = new FakeWing()
    const begunMs = Date.now()
    const first = await running(wing)
    await first.remove('web', ADMIN)
    await expect.poll(() => Date.now()).toBeGreaterThan(begunMs + 1)
    const before = await change(await running(wing), Change.RUN)
    const after = await change(await wing.open(), Change.RESET, { ...KEYED, isRepeated: true, begunMs })
    expect([wing.holders.qemu.resets, after.bootId]).toEqual([0, before.bootId])
  })
})

/** Returns whether the reset has so many writes. */
async function diesInReset(commit: number, when: 'before' | 'after'): Promise<boolean> {
  const wing = new FakeWing()
  const first = await running(wing)
  await first.close()
  const death = Promise.withResolvers<'dead'>()
  // The first write says that the instance was taken in again.
  const registry = mortalRegistry(wing.registry, { commit: commit + 1, when }, () => death.resolve('dead'))
  const mortal = await wing.open(registry)
  const ended = await Promise.race([change(mortal, Change.RESET, KEYED), death.promise])
  const next = await wing.open()
  const after = await change(next, Change.RESET, { ...KEYED, isRepeated: true })
  const at = `${when} commit ${commit}`
  expect([wing.holders.qemu.resets, wing.holders.qemu.isRunning, after.state], at).toEqual([
    1,
    true,
    State.RUNNING,
  ])
  expect(await wing.rows(), at).not.toContainEqual(expect.stringContaining('reset'))
  await next.close()
  return ended === 'dead'
}

describe('the streams of a boot', () => {
  const vsock = {
    devices: { link: { slot: 5, vsock: {}, backend: 'link-daemon' } },
    backends: { 'link-daemon': { vsockDaemon: {} } },
  }
  const ended = {
    reset: {
      message: 'instance web: the machine was reset',
      end: (instances: Instances) => change(instances, Change.RESET),
    },
    reboot: {
      message: 'instance web: the guest has rebooted',
      end: async (_: Instances, wing: FakeWing) =>
        wing.holders.qemu.emit('RESET', { guest: true, reason: 'guest-reset' }),
    },
  }

  /** A machine with an agent that greets its callers once it is ready. */
  async function made(wing: FakeWing, ready = Promise.resolve()) {
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web', { specification: vsock }), ADMIN)
    const [name = ''] = readdirSync(join(wing.folder, 'instances'))
    const folder = join(wing.folder, 'instances', name, 'run')
    mkdirSync(folder, { recursive: true })
    const agent = createServer((peer) =>
      peer.once('data', () => void ready.then(() => peer.write('OK 1\nhello'))),
    )
    agent.listen(join(folder, 'vsock.sock'))
    onTestFinished(async () => {
      await instances.close()
      agent.close()
    })
    return instances
  }
  async function greeted(instances: Instances) {
    const bytes = instances.connectAgent('web', endless(), ADMIN)[Symbol.asyncIterator]()
    expect(String((await bytes.next()).value)).toBe('hello')
    return bytes
  }
  const allocated = (instances: Instances) =>
    instances.allocatePort({ key: 'web', container: 'c', exec: '', stream: 'stdout' }, ADMIN)

  it.each(Object.keys(ended) as (keyof typeof ended)[])('end by name with a %s', async (by) => {
    const wing = new FakeWing()
    const instances = await made(wing)
    const bytes = await greeted(instances)
    const { port } = await allocated(instances)
    const isEnded = { code: 'ABORTED', message: ended[by].message }
    const expected = expect(bytes.next()).rejects.toMatchObject(isEnded)
    await ended[by].end(instances, wing)
    await expected
    await expect.poll(() => instances.streams('web', ADMIN)).toEqual([])
    expect(await wing.rows()).toEqual(expect.not.arrayContaining([`web/${port}`]))
    const attached = instances.attach({ key: 'web', port, offset: 0n }, ADMIN)[Symbol.asyncIterator]()
    await expect(attached.next()).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('outlive what the firmware resets after a reset', async () => {
    const wing = new FakeWing()
    const { promise: booted, resolve: boot } = Promise.withResolvers<void>()
    const instances = await made(wing, booted)
    const { bootId } = await change(instances, Change.RESET)
    const { port } = await allocated(instances)
    const caller = greeted(instances)
    const { sequence } = await instances.get('web', ADMIN)
    await ended.reboot.end(instances, wing)
    await expect.poll(async () => (await instances.get('web', ADMIN)).sequence).toBeGreaterThan(sequence)
    boot()
    await caller
    expect(await instances.streams('web', ADMIN)).toMatchObject([{ port }])
    expect((await instances.get('web', ADMIN)).bootId).toBe(bootId)
  })

  it('end with a reboot that follows a reset at once, of a guest that has answered', async () => {
    const wing = new FakeWing()
    const instances = await made(wing)
    await change(instances, Change.RESET)
    const bytes = await greeted(instances)
    const expected = expect(bytes.next()).rejects.toMatchObject({ message: ended.reboot.message })
    await ended.reboot.end(instances, wing)
    await expected
    await expect.poll(async () => (await instances.get('web', ADMIN)).reboots).toBe(1)
  })
})

async function* endless(): AsyncGenerator<Uint8Array> {
  await new Promise(() => {})
  yield Buffer.alloc(0)
}
