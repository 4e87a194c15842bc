import type { Server } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError, StatusCode } from '../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  EnsureInstanceRequest,
  File_Access,
  DeviceStatus_Plug as Plug,
  SnapshotRequest,
  State,
  SuspendInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { StepRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import type { MachineInstance } from '../../../src/host/instance/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { guestSocket } from '../../../src/host/instance/machine/daemon-steps.ts'
import type { Change as RowChange } from '../../../src/host/instance/registry/registry.ts'
import { settleRepair } from '../../../src/host/migration/resume.ts'
import { encodeErrorFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { type Answer, startAgent } from '../../support/wing/fakes/fake-agent.ts'
import { ADMIN, specification, tenant } from '../../support/wing/requests.ts'
import { SuspendedWing } from '../../support/wing/suspended-wing.ts'

const TIMEOUT_MS = 30_000

const suspend = (instances: Instances, withoutAgent = true) =>
  instances.suspend(SuspendInstanceRequest.fromPartial({ key: 'web', name: 'one', withoutAgent }), ADMIN)

const isWritten = (step: string) => (changes: readonly RowChange[]) =>
  changes.some(({ key, payload }) => payload !== undefined && key.startsWith(`web/${step}/`))

describe('the vsock device of a machine that was not saved', { timeout: TIMEOUT_MS }, () => {
  const plugOf = async (instances: Instances) => (await instances.get('web', ADMIN)).devices.vsock?.plug

  it('comes back when the daemon dies, and the guest lets it go before the next one', async () => {
    const wing = new SuspendedWing()
    const before = await wing.daemon()
    await wing.make(before)
    const { qemu } = wing.holders
    qemu.isPolite = false
    void suspend(before).catch(() => {})
    await expect.poll(() => qemu.commands).toContain('device_del')
    wing.isDead = true
    await before.close()
    qemu.letGo()
    const after = await wing.daemon()
    expect(await plugOf(after)).toBe(Plug.PRESENT)
    expect([...qemu.devices]).toEqual(['name-vsock'])
    expect(await wing.unfinished()).toEqual([])
  })

  it('comes back when the daemon dies while it is plugged in', async () => {
    const wing = new SuspendedWing()
    const before = await wing.daemon(isWritten('plug'))
    await wing.make(before)
    wing.atStep = async (_, step) => {
      if (step === 'memory') throw new Error('asked for')
    }
    void suspend(before).catch(() => {})
    await expect.poll(() => wing.isDead).toBe(true)
    await before.close()
    const { qemu } = wing.holders
    expect([...qemu.devices]).toEqual([])
    const after = await wing.daemon()
    expect(await plugOf(after)).toBe(Plug.PRESENT)
    expect([...qemu.devices]).toEqual(['name-vsock'])
    expect(await wing.unfinished()).toEqual([])
  })

  it('comes back when a snapshot with memory fails, which leaves nothing', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    const root = { file: { path: '/disks/root-16M', access: File_Access.READ_ONLY } }
    await wing.make(instances, { backends: { 'root-file': root } })
    wing.atStep = async (_, step) => {
      if (step === 'memory') throw new Error('asked for')
    }
    const request = { key: 'web', name: 'one', memory: true, withoutAgent: true }
    const snapshot = instances.snapshot(SnapshotRequest.fromPartial(request), ADMIN)
    await expect(snapshot).rejects.toThrow('asked for')
    expect(await plugOf(instances)).toBe(Plug.PRESENT)
    expect(wing.holders.qemu.isRunning).toBe(true)
    expect([...wing.holders.qemu.devices]).toEqual(['name-vsock'])
    expect(await instances.snapshots('web', ADMIN)).toEqual({ snapshots: [], layers: [] })
    expect(await wing.unfinished()).toEqual([])
  })

  it('comes back later when it cannot be plugged in at once', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.make(instances)
    const { qemu } = wing.holders
    wing.atStep = async (_, step) => {
      if (step !== 'memory') return
      qemu.failures.set('device_add', 'busy')
      throw new Error('asked for')
    }
    await expect(suspend(instances)).rejects.toThrow('asked for')
    // After what follows the end of the device.
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    expect(await plugOf(instances)).toBeUndefined()
    qemu.failures.clear()
    await expect.poll(() => wing.unfinished(), { timeout: 10_000 }).toEqual([])
    expect(await plugOf(instances)).toBe(Plug.PRESENT)
  })
})

describe('the streams of a machine that was not saved', { timeout: TIMEOUT_MS }, () => {
  it('go on, but for those that had ended before', async () => {
    const wing = new SuspendedWing()
    const isBegun = (changes: readonly RowChange[]) =>
      changes.some(
        ({ key, payload }) =>
          key.startsWith('web/suspend/') &&
          payload !== undefined &&
          StepRecord.decode(payload).words[5] !== undefined,
      )
    const before = await wing.daemon(isBegun)
    await wing.make(before)
    const [holder] = wing.holders.running.values()
    const ports: number[] = []
    for (const stream of ['stdin', 'stdout', 'stderr'])
      ports.push((await before.allocatePort({ key: 'web', container: 'c', exec: '', stream }, ADMIN)).port)
    const [ended = 0, live = 0] = ports
    holder?.endRing(ended)
    void suspend(before, false).catch(() => {})
    await expect.poll(() => wing.isDead).toBe(true)
    await before.close()
    // The agent lets it go.
    holder?.endRing(live)
    const after = await wing.daemon()
    await after.get('web', ADMIN)
    expect((await after.streams('web', ADMIN)).map(({ closed }) => closed)).toEqual([true, false, false])
  })
})

describe('the pod of a machine that was not saved', { timeout: TIMEOUT_MS }, () => {
  let server: Server | undefined
  afterEach(() => void server?.close())
  const request = SuspendInstanceRequest.fromPartial({ key: 'web', name: 'one', quiesce: true })

  async function make(wing: SuspendedWing, instances: Instances, own: Parameters<typeof startAgent>[2] = {}) {
    await wing.make(instances)
    const calls: string[] = []
    server = await startAgent(guestSocket(wing.folderOf('web')), calls, own)
    return calls
  }

  it('is at rest no more when the daemon has died meanwhile', async () => {
    const wing = new SuspendedWing()
    const before = await wing.daemon()
    const calls = await make(wing, before)
    const reached = Promise.withResolvers<void>()
    wing.atStep = async (_, step) => {
      if (step !== 'detach') return
      reached.resolve()
      await new Promise(() => {})
    }
    void before.suspend(request, ADMIN).catch(() => {})
    await reached.promise
    wing.isDead = true
    await before.close()
    expect(calls).toEqual(['Quiesce'])
    await (await wing.daemon()).get('web', ADMIN)
    expect(calls).toEqual(['Quiesce', 'Thaw'])
    expect(await wing.unfinished()).toEqual([])
  })

  it('that is at rest for others, and refuses another rest, stays so', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    const status = { code: StatusCode.FAILED_PRECONDITION, message: 'frozen already' }
    const Quiesce: Answer = (socket, id) => socket.write(encodeErrorFrame(id, status))
    const calls = await make(wing, instances, { Quiesce })
    await expect(instances.suspend(request, ADMIN)).rejects.toThrow('quiesce: frozen already')
    expect(calls).toEqual(['Quiesce'])
  })

  it('is thawed when the answer of its rest is lost', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    const calls = await make(wing, instances, { Quiesce: (socket) => socket.destroy() })
    await expect(instances.suspend(request, ADMIN)).rejects.toThrow('quiesce: ttrpc: closed')
    expect(calls).toEqual(['Quiesce', 'Thaw'])
  })
})

describe('a machine that was not saved, and does not go on', { timeout: TIMEOUT_MS }, () => {
  const text = /; instance web does not go on: .*Failed to get "write" lock$/
  const stands = {
    state: State.PAUSED,
    reason: expect.stringMatching(/^instance web does not go on: .*Failed to get "write" lock$/),
  }

  it('is told by the answer and the record, and goes on once it is asked to', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.make(instances)
    const { qemu } = wing.holders
    wing.atStep = async (_, step) => {
      if (step !== 'memory') return
      qemu.failures.set('cont', 'Failed to get "write" lock')
      throw new AgentError('INTERNAL', 'asked for')
    }
    await expect(suspend(instances)).rejects.toThrow(text)
    expect(qemu.commands.filter((command) => command === 'cont').length).toBeGreaterThan(3)
    expect(await instances.get('web', ADMIN)).toMatchObject(stands)
    qemu.failures.clear()
    const run = { key: 'web', change: Change.RUN, graceMs: 0 }
    expect(await instances.changeState(run, ADMIN)).toMatchObject({ state: State.RUNNING, reason: '' })
  })

  it('is tried again within the suspend', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.make(instances)
    const { qemu } = wing.holders
    wing.atStep = async (_, step) => {
      if (step !== 'memory') return
      qemu.failures.set('cont', 'Failed to get "write" lock')
      throw new AgentError('INTERNAL', 'asked for')
    }
    const failed = suspend(instances)
    await expect.poll(() => qemu.commands.filter((command) => command === 'cont').length).toBe(2)
    qemu.failures.clear()
    await expect(failed).rejects.toThrow(/asked for$/)
    expect(await instances.get('web', ADMIN)).toMatchObject({ state: State.RUNNING, reason: '' })
  })

  it('is told by the next daemon too', async () => {
    const wing = new SuspendedWing()
    const before = await wing.daemon()
    await wing.make(before)
    const { qemu } = wing.holders
    const stopped = Promise.withResolvers<void>()
    wing.atStep = async (_, step) => {
      if (step !== 'memory') return
      stopped.resolve()
      await new Promise(() => {})
    }
    void suspend(before).catch(() => {})
    await stopped.promise
    wing.isDead = true
    await before.close()
    qemu.failures.set('cont', 'Failed to get "write" lock')
    const after = await wing.daemon()
    expect(await after.get('web', ADMIN)).toMatchObject(stands)
  })
})

describe('a machine of a tenant', () => {
  it.each([
    [{ savedMachines: 0 }, '1 saved machines, want at most 0'],
    [{ savedMib: 63 }, '64 MiB of saved machines, want at most 63'],
  ])('is not saved beyond its quota %o, and goes on', async (quota, text) => {
    const wing = new SuspendedWing()
    wing.quota = quota
    const instances = await wing.daemon()
    await wing.make(instances, { tenant: 'anne' })
    await expect(suspend(instances)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: `tenant anne: ${text}`,
    })
    expect(wing.holders.qemu.commands).not.toContain('device_del')
  })
})

describe('a tenant', { timeout: TIMEOUT_MS }, () => {
  it('is not told either why one was not saved with the path of the store', async () => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.make(instances, { tenant: 'anne' })
    wing.atStep = async (_, step) => {
      if (step === 'memory') throw new AgentError('INTERNAL', `${wing.folder}/saved/anne/one: asked for`)
    }
    await expect(suspend(instances)).rejects.toThrow('asked for')
    const { operations } = await instances.get('web', tenant('anne'))
    expect(operations.map(({ failure }) => failure)).toEqual([expect.not.stringContaining(wing.folder)])
    expect(operations[0]?.failure).toContain('one: asked for')
  })

  it('is not told where the host has its saved machines', async () => {
    const instances = await new SuspendedWing().daemon()
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, saved: { name: 'one' } })
    await expect(instances.ensure(request, tenant('anne'))).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'one: no saved machine',
    })
  })
})

describe('a guest that is to be told of its restore', () => {
  const REPAIR = StepRecord.fromPartial({ instance: 'web', step: 'repair', words: ['', ''] })
  const VSOCK = Device.fromPartial({ backend: 'socket', port: 'port', vsock: {} })
  it.each([
    ['UNAVAILABLE', []],
    ['DEADLINE_EXCEEDED', []],
    ['FAILED_PRECONDITION', [REPAIR]],
  ] as const)('is told again after %s, unless it has said that it fails', async (code, dropped) => {
    const drops: StepRecord[] = []
    const instance = {
      key: 'web',
      record: {
        specification: specification({
          devices: { vsock: VSOCK },
          backends: { socket: { vsockDaemon: {} } },
        }),
      },
      recorded: {
        record: { madeByClone: false },
        steps: [REPAIR],
        note: async ({ drop = [] }: { readonly drop?: readonly StepRecord[] }) => void drops.push(...drop),
      },
      ending: neverAborted,
      machine: () => ({ qmp: { command: () => Promise.reject(new AgentError(code, 'cut')) } }),
    } as unknown as MachineInstance
    await expect(settleRepair(instance)).rejects.toMatchObject({ code, message: 'instance web: cut' })
    expect(drops).toEqual(dropped)
  })
})
