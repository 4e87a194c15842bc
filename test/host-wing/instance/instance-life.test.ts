import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import { ADMIN, ensureRequest, file, specification, tenant } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const change = (instances: Instances, to: Change, graceMs = 0) =>
  instances.changeState({ key: 'web', change: to, graceMs }, ADMIN)

const stateOf = async (instances: Instances) => (await instances.get('web', ADMIN)).state

/** Resolves when the instance is stopped, with the reason. */
async function stopped(instances: Instances): Promise<string> {
  for await (const { changes } of instances.watch({ after: 0n, once: false }, ADMIN)) {
    if (changes.some(({ state }) => state === State.STOPPED)) break
  }
  return (await instances.get('web', ADMIN)).reason
}

/** Each reboot comes a second after the last one, with what the firmware then resets. */
async function reboot(wing: FakeWing, instances: Instances, times: number, resets = [true]): Promise<void> {
  for (let count = 0; count < times; count++) {
    wing.monotonicMs += 1000
    const { sequence } = await instances.get('web', ADMIN)
    for (const guest of resets) wing.holders.qemu.emit('RESET', { guest })
    const all = sequence + BigInt(resets.length)
    await expect
      .poll(async () => (await instances.get('web', ADMIN)).sequence, { interval: 1 })
      .toBeGreaterThanOrEqual(all)
  }
}

describe('the life of an instance', () => {
  it('begins paused, runs, pauses, stops, starts anew, and leaves nothing when it is removed', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    const made = await instances.ensure(ensureRequest('web'), ADMIN)
    expect([made.state, wing.holders.processes]).toEqual([State.PAUSED, ['holder', 'qemu']])
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    expect((await change(instances, Change.PAUSE)).state).toBe(State.PAUSED)
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    const halted = await change(instances, Change.STOP)
    expect([halted.state, halted.reason, wing.holders.processes]).toEqual([State.STOPPED, '', []])
    expect(existsSync(join(wing.folder, 'instances'))).toBe(true)
    const again = await change(instances, Change.RUN)
    expect(again.state).toBe(State.RUNNING)
    expect(again.bootId).not.toBe(made.bootId)
    await instances.remove('web', ADMIN)
    expect([wing.holders.processes, readdirSync(join(wing.folder, 'instances')), await wing.rows()]).toEqual([
      [],
      [],
      [],
    ])
    await expect(instances.get('web', ADMIN)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('is one instance when it is ensured twice at once, and refuses another content by its path', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    const [first, second] = await Promise.all([
      instances.ensure(ensureRequest('web'), ADMIN),
      instances.ensure(ensureRequest('web'), ADMIN),
    ])
    expect(second.bootId).toBe(first.bootId)
    const other = ensureRequest('web', { specification: { board: { cpus: 2 } } })
    await expect(instances.ensure(other, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining('board.cpus'),
    })
  })

  it('has its console as port 0, from the first byte that is kept', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    const [holder] = wing.holders.running.values()
    holder?.write(0, 'the first line\n')
    const output = instances.attach({ key: 'web', port: 0, offset: 4n }, ADMIN)[Symbol.asyncIterator]()
    expect(await output.next()).toEqual({
      done: false,
      value: { offset: 4n, data: Buffer.from('first line\n') },
    })
    await output.return?.()
  })

  it('has no stream whose port could not be listened on', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    const rows = await wing.rows()
    wing.holders.unheard = 65_536
    const allocate = () =>
      instances.allocatePort({ key: 'web', container: 'c', exec: '', stream: 'stdout' }, ADMIN)
    await expect(allocate()).rejects.toThrow('port 65536: no space left')
    expect([await instances.streams('web', ADMIN), await wing.rows()]).toEqual([[], rows])
    expect((await allocate()).port).toBe(65_537)
  })

  it('is forgotten when it cannot be made', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    wing.holders.failure = 'no PID namespace'
    await expect(instances.ensure(ensureRequest('web'), ADMIN)).rejects.toThrow('no PID namespace')
    expect([instances.list(ADMIN), await wing.rows()]).toEqual([[], []])
    wing.holders.failure = undefined
    expect((await instances.ensure(ensureRequest('web'), ADMIN)).state).toBe(State.PAUSED)
  })

  it("is another's when a tenant asks", async () => {
    const instances = await new FakeWing().open()
    await instances.ensure(ensureRequest('web'), tenant('red'))
    await expect(instances.get('web', tenant('blue'))).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await expect(instances.ensure(ensureRequest('web'), tenant('blue'))).rejects.toMatchObject({
      code: 'ALREADY_EXISTS',
    })
    expect(instances.list(tenant('blue'))).toEqual([])
    expect((await instances.get('web', ADMIN)).properties?.tenant).toBe('red')
  })
})

describe('a machine that goes wrong', () => {
  const cases: readonly (readonly [
    string,
    (wing: FakeWing, instances: Instances) => unknown,
    string | RegExp,
  ])[] = [
    ['QEMU ends', (wing) => wing.holders.qemu.end(), 'QEMU exited with status 0'],
    ['QEMU writes garbage', (wing) => wing.holders.qemu.write('what?\n'), 'QMP: not JSON: what?'],
    [
      'the guest panics',
      (wing) => wing.holders.qemu.emit('GUEST_PANICKED', { action: 'pause' }),
      'the guest panicked',
    ],
    ['the holder dies', (wing) => [...wing.holders.running.values()][0]?.die(), 'the holder died'],
    [
      'QEMU ignores a command',
      (wing, instances) => {
        wing.holders.qemu.ignored.add('stop')
        return expect(change(instances, Change.PAUSE)).rejects.toThrow(
          'QEMU did not answer `stop` within 500 ms',
        )
      },
      'QEMU did not answer `stop` within 500 ms',
    ],
    [
      'QEMU sends events without end',
      (wing) => {
        const commit = wing.registry.commit.bind(wing.registry)
        const slow = vi.spyOn(wing.registry, 'commit').mockImplementation(async (...changes) => {
          await sleep(1)
          await commit(...changes)
        })
        onTestFinished(() => slow.mockRestore())
        for (let count = 0; count < 2000; count++) wing.holders.qemu.emit('RESET', { guest: false })
      },
      'QEMU sent more than 1000 events at once',
    ],
    [
      'the guest reboots too often',
      (wing, instances) => reboot(wing, instances, 4),
      'the guest rebooted more than 3 times in 60 s',
    ],
  ]
  it.each(cases)('is stopped with the reason when %s', async (_, breakIt, reason) => {
    const wing = new FakeWing({ commandMs: 500, exitMs: 50 })
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    await change(instances, Change.RUN)
    await breakIt(wing, instances)
    expect(await stopped(instances)).toBe(reason)
    expect(wing.holders.processes).toEqual([])
    await expect(change(instances, Change.PAUSE)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
  })

  it('runs on while a disk fails at each request, and knows the errors of its own disks alone', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    wing.holders.prepare = (qemu) =>
      qemu.nodes.set('name-root-file', { file: '/disks/root-16M', size: 2 ** 24, isRaw: true })
    await instances.ensure(ensureRequest('web'), ADMIN)
    const fail = (node: string) =>
      wing.holders.qemu.emit('BLOCK_IO_ERROR', { 'node-name': node, operation: 'read', reason: 'EIO' })
    const before = (await instances.get('web', ADMIN)).sequence
    for (let count = 0; count < 2000; count++) fail(`other-${count}`)
    for (let count = 0; count < 2000; count++) fail('name-root-file')
    const found = async () => (await instances.get('web', ADMIN)).backends['root-file']?.lastError
    await expect.poll(found).toBe('read: EIO')
    const { state, sequence } = await instances.get('web', ADMIN)
    expect([state, sequence - before]).toEqual([State.PAUSED, 1n])
  })

  it('keeps the reason when it is stopped or killed again', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    wing.holders.qemu.emit('GUEST_PANICKED')
    await stopped(instances)
    const { sequence } = await instances.get('web', ADMIN)
    for (const to of [Change.STOP, Change.KILL])
      expect(await change(instances, to)).toMatchObject({ reason: 'the guest panicked', sequence })
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
  })

  it('is told by the last event of a QEMU that exits at once', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    await change(instances, Change.RUN)
    wing.holders.qemu.emit('GUEST_PANICKED')
    wing.holders.qemu.end()
    expect(await stopped(instances)).toBe('the guest panicked')
  })

  it('keeps running while it reboots no more often than it may, with another boot id each time', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    const { bootId } = await instances.ensure(ensureRequest('web'), ADMIN)
    await change(instances, Change.RUN)
    await reboot(wing, instances, 3)
    const reset = await change(instances, Change.RESET)
    expect([reset.state, reset.reboots]).toEqual([State.RUNNING, 3])
    expect(reset.bootId).not.toBe(bootId)
  })

  it.each([true, false])(
    'does not count what its firmware resets after a reset by the guest: %s',
    async (guest) => {
      const wing = new FakeWing()
      const instances = await wing.open()
      await instances.ensure(ensureRequest('web'), ADMIN)
      await change(instances, Change.RUN)
      await reboot(wing, instances, 3, [guest, true, true])
      const reset = await change(instances, Change.RESET)
      expect([reset.state, reset.reboots]).toEqual([State.RUNNING, guest ? 3 : 0])
    },
  )

  it.each([-1, 1])('counts its reboots although the clock is set %i days further', async (days) => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    await change(instances, Change.RUN)
    await reboot(wing, instances, 3)
    await change(instances, Change.RESET)
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + days * 86_400_000 })
    try {
      wing.monotonicMs += 55_000
      await reboot(wing, instances, 1)
      expect(await stopped(instances)).toBe('the guest rebooted more than 3 times in 60 s')
    } finally {
      vi.useRealTimers()
    }
  })

  it('counts no reboots from before that time, whatever the clock says, and none from before a start', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    await change(instances, Change.RUN)
    for (let minutes = 0; minutes < 3; minutes++) {
      await reboot(wing, instances, 3)
      wing.monotonicMs += 60_000
      expect((await change(instances, Change.RESET)).state).toBe(State.RUNNING)
    }
    await reboot(wing, instances, 4)
    await stopped(instances)
    await change(instances, Change.RUN)
    await reboot(wing, instances, 3)
    expect(await change(instances, Change.RESET)).toMatchObject({ state: State.RUNNING, reboots: 16 })
  })

  it('is killed when its guest ignores the power button, and at once when it is killed meanwhile', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    await change(instances, Change.RUN)
    wing.holders.qemu.isPolite = false
    expect((await change(instances, Change.STOP, 20)).state).toBe(State.STOPPED)
    await change(instances, Change.RUN)
    wing.holders.qemu.isPolite = false
    const stopping = change(instances, Change.STOP, 60_000)
    expect(await stateOf(instances)).toBe(State.STOPPING)
    expect((await change(instances, Change.KILL)).state).toBe(State.STOPPED)
    expect((await stopping).state).toBe(State.STOPPED)
    expect(wing.holders.processes).toEqual([])
  })

  it('is not made of a QEMU that sends events and nothing else', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    wing.holders.prepare = (qemu) => {
      qemu.ignored.add('qmp_capabilities')
      const flood = setInterval(() => {
        for (let count = 0; count < 300; count++) qemu.emit('RESET', { guest: false })
      }, 10)
      onTestFinished(() => clearInterval(flood))
    }
    await expect(instances.ensure(ensureRequest('web'), ADMIN)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'QEMU sent more than 1000 events before it could be asked',
    })
    expect([wing.holders.processes, await wing.rows()]).toEqual([[], []])
  })

  it('can be removed while QEMU does not greet', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    const listening = Promise.withResolvers<void>()
    wing.holders.prepare = (qemu) => {
      qemu.ignored.add('greeting')
      listening.resolve()
    }
    const making = instances.ensure(ensureRequest('web'), ADMIN)
    const failed = expect(making).rejects.toMatchObject({ code: 'ABORTED' })
    await listening.promise
    await expect(instances.remove('web', ADMIN)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await failed
    expect([wing.holders.processes, await wing.rows()]).toEqual([[], []])
  })
})

describe('a registry whose disk is full', () => {
  it('refuses what is new, and lets a machine end', async () => {
    const wing = new FakeWing()
    let isFull = false
    const registry: Registry = {
      load: (table) => wing.registry.load(table),
      close: () => wing.registry.close(),
      commit: (changes) =>
        isFull
          ? Promise.reject(new AgentError('RESOURCE_EXHAUSTED', 'registry: the disk is full'))
          : wing.registry.commit(changes),
    }
    const instances = await wing.open(registry)
    await instances.ensure(ensureRequest('web'), ADMIN)
    isFull = true
    await expect(instances.ensure(ensureRequest('other'), ADMIN)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
    })
    expect(instances.list(ADMIN)).toHaveLength(1)
    await expect(change(instances, Change.RUN)).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
    const plugging = instances.plug({ key: 'web', deviceKey: 'data', device, backend: file('/data') }, ADMIN)
    await expect(plugging).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    const { state, specification: kept } = await instances.get('web', ADMIN)
    expect([state, kept, wing.holders.qemu.isRunning]).toEqual([State.PAUSED, specification(), false])
    expect((await change(instances, Change.KILL)).state).toBe(State.STOPPED)
    expect(wing.holders.processes).toEqual([])
    isFull = false
    expect((await change(instances, Change.RUN)).state).toBe(State.RUNNING)
    isFull = true
    expect((await change(instances, Change.STOP)).state).toBe(State.STOPPED)
    expect(wing.holders.processes).toEqual([])
    await expect(instances.remove('web', ADMIN)).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    expect([await stateOf(instances), readdirSync(join(wing.folder, 'instances'))]).toEqual([
      State.REMOVING,
      [],
    ])
    isFull = false
    await instances.remove('web', ADMIN)
    expect(await wing.rows()).toEqual([])
  })
})
