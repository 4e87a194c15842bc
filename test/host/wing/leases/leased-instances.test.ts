import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
  type EnsureInstanceRequest,
  File_Access,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode, RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import { findHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { FakeLeaseController } from '../../../support/wing/fakes/fake-lease-controller.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const TTL_MS = 2000
/** Nothing is for other hosts. */
const NO_VOLUMES = {
  ...{ address: '127.0.0.1', listen: '127.0.0.1', folders: {} },
  identity: { ca: '', cert: '', key: '' },
}
const { LM_FULL_LEASES, LM_STORAGE_LOCKING, LM_UNKNOWN } = LeaseMode

describe('instances with a lease', () => {
  let folder: string
  let plan: ReturnType<typeof lifePlan>
  let instances: Instances
  let controller: FakeLeaseController
  let registry: ReturnType<typeof memoryRegistry>
  let runs: bigint

  beforeEach(async () => {
    folder = temporaryFolder()
    plan = lifePlan(join(folder, 'disks'))
    controller = new FakeLeaseController()
    controller.ttlMs = BigInt(TTL_MS)
    registry = memoryRegistry()
    runs = 100n
    instances = await open()
  })
  afterEach(async () => {
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await instances.close()
  })

  function open(): Promise<Instances> {
    const nextRunId = async () => ++runs
    return openReal(folder, registry, { leases: { id: 'a', controller, nextRunId, volumes: NO_VOLUMES } })
  }
  function request(
    mode: LeaseMode,
    ttlMs = 0,
    access: File_Access = File_Access.READ_WRITE,
  ): EnsureInstanceRequest {
    const { specification } = plan.request
    const path = join(folder, 'disks', 'root')
    const root = Backend.fromPartial({ file: { path, access } })
    return {
      ...plan.request,
      properties: { key: 'web', tenant: '', labels: {}, lease: { mode, ttlMs } },
      specification: specification && { ...specification, backends: { 'root-file': root } },
    }
  }
  function withRoot(
    wanted: EnsureInstanceRequest,
    root: Parameters<typeof Backend.fromPartial>[0],
    device?: Parameters<typeof Device.fromPartial>[0],
  ): EnsureInstanceRequest {
    const { specification } = wanted
    const backends = { 'root-file': Backend.fromPartial(root) }
    const [[key = '', first] = []] = Object.entries(specification?.devices ?? {})
    const devices = device && {
      [key]: Device.fromPartial({ ...device, slot: first?.slot ?? 0, backend: 'root-file' }),
    }
    return {
      ...wanted,
      specification: specification && { ...specification, backends, ...(devices && { devices }) },
    }
  }
  const full = () => request(LM_FULL_LEASES, TTL_MS, File_Access.SCRATCH)
  const run = () => instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
  const get = () => instances.get('web', ADMIN)
  const comesTo = (state: State) =>
    expect.poll(async () => (await get()).state, { timeout: 8000 }).toBe(state)
  const hasEnded = (pid: number) => expect.poll(() => processState(pid)?.state ?? 'Z').toBe('Z')

  it('are made known to a controller, and end at once when it says so', async () => {
    await instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)
    const { qemuPid } = await run()
    const { us, settings } = controller.vms.get('web') ?? expect.fail('not known')
    expect(us).toEqual({
      vmName: 'web',
      namespace: 'default',
      podName: expect.stringMatching(/^a\/./),
      runId: 101n,
    })
    expect(settings).toMatchObject({
      leaseMode: LM_STORAGE_LOCKING,
      leaseTtlMs: 0n,
      needs: { memoryMib: 64n },
    })
    controller.say(Status.STATUS_UNKNOWN)
    controller.say(9 as Status)
    await sleep(200)
    expect((await get()).state).toBe(State.RUNNING)
    controller.say(Status.STATUS_TERMINATE)
    await comesTo(State.TERMINATED)
    expect((await get()).reason).toBe('terminated by the controller')
    expect(instances.list(ADMIN).map(({ state }) => state)).toEqual([State.TERMINATED])
    await hasEnded(qemuPid)
    // The disk and its lock are free, and the next run has a greater number.
    expect((await run()).state).toBe(State.RUNNING)
    expect(controller.vms.get('web')?.us?.runId).toBe(102n)
    expect(controller.vms.get('web')?.us?.podName).toBe(us?.podName)
    await instances.remove('web', ADMIN)
    expect(controller.removed.map(({ runId }) => runId)).toEqual([102n])
  })

  it('with LM_STORAGE_LOCKING start and run on without a controller', async () => {
    controller.isAway = true
    await instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)
    await run()
    await expect.poll(() => controller.streams, { timeout: 4000 }).toBe(0)
    // Ten times as long as a lease of the other mode in these tests may last.
    await sleep(3000)
    expect((await get()).state).toBe(State.RUNNING)
    controller.isAway = false
    await expect.poll(() => controller.vms.has('web'), { timeout: 8000 }).toBe(true)
  })

  it('are not started when another hypervisor runs the machine', async () => {
    controller.isTaken = true
    await expect(instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    expect(instances.list(ADMIN)).toEqual([])
  })

  it('with LM_FULL_LEASES run while they are renewed, and end with the lease', async () => {
    await instances.ensure(full(), ADMIN)
    const { qemuPid, holderPid } = await run()
    await sleep(TTL_MS * 1.5)
    expect((await get()).state).toBe(State.RUNNING)
    controller.isAway = true
    await comesTo(State.TERMINATED)
    expect((await get()).reason).toBe('the lease has ended')
    for (const pid of [qemuPid, holderPid]) await hasEnded(pid)
    await expect(run()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    controller.isAway = false
    expect((await run()).state).toBe(State.RUNNING)
  })

  it('with LM_FULL_LEASES end without their daemon, and the next one tells why', async () => {
    await instances.ensure(full(), ADMIN)
    const { qemuPid } = await run()
    await instances.close()
    await expect.poll(() => processState(qemuPid)?.state ?? 'Z', { timeout: 2 * TTL_MS }).toBe('Z')
    instances = await open()
    expect(await get()).toMatchObject({ state: State.TERMINATED, reason: 'the lease has ended' })
  })

  it('with LM_FULL_LEASES end while the next daemon takes them in, which tells why', async () => {
    await instances.ensure(full(), ADMIN)
    const { qemuPid } = await run()
    await instances.close()
    // It runs, and does not answer the daemon.
    process.kill(qemuPid, 'SIGSTOP')
    instances = await open()
    await comesTo(State.TERMINATED)
    expect((await get()).reason).toBe('the lease has ended')
  })

  it('with LM_FULL_LEASES are renewed by the next daemon', async () => {
    await instances.ensure(full(), ADMIN)
    const { qemuPid } = await run()
    await instances.close()
    instances = await open()
    await sleep(TTL_MS * 1.5)
    expect(await get()).toMatchObject({ state: State.RUNNING, qemuPid })
    controller.isTaken = true
    await comesTo(State.TERMINATED)
  })

  it('with LM_FULL_LEASES do not begin without a grant', async () => {
    controller.ttlMs = 0n
    const ensured = instances.ensure(full(), ADMIN)
    await expect.poll(() => controller.vms.has('web')).toBe(true)
    controller.isTaken = true
    await expect(ensured).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    expect(instances.list(ADMIN)).toEqual([])
    expect(existsSync(join(folder, 'instances', 'web'))).toBe(false)
    expect(controller.removed.map(({ runId }) => runId)).toEqual([101n])
  })

  it('with LM_FULL_LEASES write to disks that this host serves to them alone', async () => {
    await instances.ensure(request(LM_FULL_LEASES, TTL_MS), ADMIN)
    await run()
    const path = join(folder, 'disks', 'root')
    expect(controller.vms.get('web')?.volumes).toMatchObject([{ key: 'root-file', host: 'a', path }])
    await instances.close()
    instances = await open()
    const [server = ''] = readdirSync(join(folder, 'volumes'))
    const holder = await findHolder(join(folder, 'volumes', server))
    const [before] = (await holder?.children()) ?? []
    await holder?.kill('volume', 9)
    await holder?.ended
    const pidOf = async () => {
      const again = await findHolder(join(folder, 'volumes', server))
      const [child] = (await again?.children()) ?? []
      again?.disconnect()
      return child?.pid ?? before?.pid
    }
    await expect.poll(pidOf, { timeout: 8000 }).not.toBe(before?.pid)
    expect((await get()).state).toBe(State.RUNNING)
    await instances.remove('web', ADMIN)
    expect(readdirSync(join(folder, 'volumes'))).toEqual([])
    expect([...(await registry.load('settings')).keys()].join()).not.toMatch('volume/')
  })

  it('are removed from a controller that was away', async () => {
    await instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)
    controller.isAway = true
    await instances.remove('web', ADMIN)
    expect(controller.removed).toEqual([])
    controller.isAway = false
    await expect
      .poll(() => controller.removed.map(({ vmName }) => vmName), { timeout: 4000 })
      .toEqual(['web'])
  })

  it('are removed from a controller by the next daemon', async () => {
    await instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)
    controller.isAway = true
    await instances.remove('web', ADMIN)
    await instances.close()
    controller.isAway = false
    instances = await open()
    await expect.poll(() => controller.removed.map(({ vmName }) => vmName)).toEqual(['web'])
    await expect
      .poll(async () => [...(await registry.load('settings')).keys()].join())
      .not.toMatch('removal/')
  })

  it('are refused by the name of what is wrong', async () => {
    const refusals = [
      [request(LM_UNKNOWN), 'INVALID_ARGUMENT', 'properties.lease.mode: 0, want LM_STORAGE_LOCKING or'],
      [request(7 as LeaseMode), 'INVALID_ARGUMENT', 'properties.lease.mode: 7'],
      [request(LM_STORAGE_LOCKING, 1000), 'INVALID_ARGUMENT', 'properties.lease.ttl_ms'],
      [
        request(LM_FULL_LEASES, 999),
        'INVALID_ARGUMENT',
        'properties.lease.ttl_ms: 999, want 1000 to 3600000',
      ],
      [request(LM_FULL_LEASES, 2 ** 32 - 1), 'INVALID_ARGUMENT', 'properties.lease.ttl_ms: 4294967295'],
      [
        withRoot(request(LM_FULL_LEASES, TTL_MS), { virtiofsd: { path: folder } }, { share: { tag: 'x' } }),
        'FAILED_PRECONDITION',
        'backends.root-file: cannot be fenced (virtiofsd), as LM_FULL_LEASES wants it',
      ],
      [
        withRoot(request(LM_STORAGE_LOCKING), {
          file: { path: '/srv/x', access: File_Access.READ_WRITE, host: 'b' },
        }),
        'FAILED_PRECONDITION',
        'backends.root-file.file.host: want properties.lease with LM_FULL_LEASES for a disk of another host',
      ],
    ] as const
    for (const [wanted, code, text] of refusals)
      await expect(instances.ensure(wanted, ADMIN)).rejects.toMatchObject({
        code,
        message: expect.stringContaining(text),
      })
    // None of them is known to a controller, where nothing would remove it.
    expect([...controller.vms]).toEqual([])
    await instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)
    await expect(instances.ensure(plan.request, ADMIN)).rejects.toThrow('web: properties.lease: differs')
    await instances.remove('web', ADMIN)
    await instances.close()
    instances = await openReal(folder, registry)
    await expect(instances.ensure(request(LM_STORAGE_LOCKING), ADMIN)).rejects.toThrow(
      'properties.lease: this daemon has no controllers',
    )
  })
})
