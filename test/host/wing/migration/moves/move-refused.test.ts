import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../../src/base/abort.ts'
import { AgentError } from '../../../../../src/base/errors.ts'
import { HandoverDefinition, MoveRequest } from '../../../../../src/gen/microvm/instance/v1/handover.ts'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  EnsureInstanceRequest,
  InstanceServiceDefinition,
  DeviceStatus_Plug as Plug,
  Specification,
  State,
} from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { HypervisorDefinition, type HypervisorID } from '../../../../../src/gen/vm.ts'
import { checkShared, markDisks, unmarkDisks } from '../../../../../src/host/migration/move/shared-disks.ts'
import { readCredentials } from '../../../../../src/host/tls/credentials.ts'
import { dialHost } from '../../../../../src/host/tls/dial-host.ts'
import { clientFor } from '../../../../../src/rpc/client.ts'
import { listeningPorts } from '../../../../support/processes.ts'
import { leftovers } from '../../../../support/wing/leftovers.ts'
import { DOCUMENT_LIFE } from '../../../../support/wing/lives/document-life.ts'
import { hostOf } from '../../../../support/wing/moves/host-certificates.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { documentLifePlan } from '../../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../../support/wing/requests.ts'

const TIMEOUT_MS = 120_000
const US: HypervisorID = { vmName: 'other', namespace: 'default', podName: 'a/1', runId: 1n }
const PROTOCOL = { qmeuBlock: { constraintTls: true, constraintHandover: 2 } }

describe('a move that cannot be', { timeout: TIMEOUT_MS }, () => {
  let hosts: MovingHosts

  beforeAll(async () => {
    hosts = new MovingHosts(['a', 'b', 'c'])
    hosts.authority.sign('controller')
    await hosts.make('a')
    await hosts.open('b')
  })

  afterAll(async () => {
    await hosts.end()
    for (const id of ['a', 'b']) expect(leftovers(hosts.host(id).machines.folder)).toEqual([])
  })

  /** The machine goes on at host a, and no other host has any. */
  async function expectUnmoved(): Promise<void> {
    const [a, b] = [await hosts.open('a'), await hosts.open('b')]
    expect((await a.instances.get('web', ADMIN)).state).toBe(State.RUNNING)
    await hosts.host('a').machines.counted('web', 10)
    await hosts.host('a').machines.told()
    await expect.poll(() => b.instances.list(ADMIN), { timeout: 10_000 }).toEqual([])
  }

  it('is refused with the reason of the controller, and to this very host', async () => {
    await expect(hosts.move('a', 'nowhere')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'target: no live migration: no host nowhere fits',
    })
    await expect(hosts.move('a', 'a')).rejects.toThrow('target: to_host: a is this host')
    await expectUnmoved()
  })

  it('is told beforehand, with what keeps the machine here', async () => {
    const dry = async (toHost: string) => (await hosts.move('a', toHost, { dryRun: true })).at(-1)?.forecast
    const { vms } = hosts.controller
    vms.clear()
    expect(await dry('b')).toMatchObject({ host: 'b', obstacles: [], memoryBytes: 64n * 2n ** 20n })
    expect(await dry('nowhere')).toMatchObject({
      host: '',
      obstacles: ['no live migration: no host nowhere fits'],
    })
    const target = hosts.controller.hosts.get('b')
    if (target === undefined) throw new Error('no host b')
    hosts.controller.hosts.set('b', { ...target, endpoint: '127.0.0.1:1' })
    expect(await dry('b')).toMatchObject({ obstacles: ['host b at 127.0.0.1:1: ECONNREFUSED'] })
    hosts.controller.hosts.set('b', target)
    expect([...vms]).toEqual([])
    await expectUnmoved()
  })

  const tap = Backend.fromPartial({ tap: { interfaceName: 'tap-none' } })

  it.each<[string, Backend, string]>([
    ['root', tap, 'root: a device, which stays as the guest knows it, want its backend root-file'],
    ['nothing', tap, 'nothing: no such backend, only backends can be replaced'],
    ['root-file', tap, 'root-file: tap, want file as before: the guest would see it'],
    ['nothing', file('/disk'), 'constraint_nbd of nothing'],
  ])('is refused with what replaces %s at the target', async (key, backend, text) => {
    hosts.replaced = { [key]: backend }
    await expect(hosts.move('a', 'b').finally(() => Object.assign(hosts, { replaced: {} }))).rejects.toThrow(
      text,
    )
    await expectUnmoved()
  })

  it('is refused without the volume that the target has elsewhere', async () => {
    const missing = join(hosts.disks, 'images', 'missing')
    hosts.replaced = { 'root-file': file(missing) }
    await expect(hosts.move('a', 'b').finally(() => Object.assign(hosts, { replaced: {} }))).rejects.toThrow(
      missing,
    )
    await expectUnmoved()
  })

  /** Moves the machine until a step begins, and leaves then. */
  async function leaveAt(at: string): Promise<void> {
    const left = new AbortController()
    const { instances } = await hosts.open('a')
    const request = { key: 'web', toHost: 'b', dryRun: false, quiesce: false, withoutAgent: false }
    for await (const { step } of instances.move.migrate(request, { ...ADMIN, signal: left.signal }))
      if (step === at) left.abort(new AgentError('CANCELLED', 'the caller has left'))
  }

  it.each(['target', 'negotiate', 'handover', 'disks', 'memory', 'state'])(
    'is cancelled when its caller leaves at step %s',
    async (at) => {
      await expect(leaveAt(at)).rejects.toMatchObject({ code: 'CANCELLED' })
      await expectUnmoved()
    },
  )

  it('is cancelled while a controller or the target does not answer', async () => {
    const target = hosts.controller.hosts.get('b')
    if (target === undefined) throw new Error('no host b')
    hosts.controller.hosts.set('b', { ...target, ensureTarget: () => new Promise(() => {}) })
    await expect(leaveAt('target')).rejects.toMatchObject({ code: 'CANCELLED' })
    hosts.controller.hosts.set('b', target)
    const released = Promise.withResolvers<void>()
    hosts.host('b').atStep = async (_, step) => {
      if (step === 'listen') await released.promise
    }
    await expect(leaveAt('handover')).rejects.toMatchObject({ code: 'CANCELLED' })
    hosts.host('b').atStep = async () => {}
    released.resolve()
    await expectUnmoved()
  })

  it('is undone before the daemon ends whose caller has left', async () => {
    await hosts.leave('a')
    hosts.settleMs = 20_000
    await hosts.open('a')
    const left = leaveAt('state').catch((error) => error)
    await new Promise<void>((resolve) => {
      hosts.host('a').atStep = async (_, step) => {
        if (step === 'state') resolve()
      }
    })
    hosts.host('a').atStep = async () => {}
    await hosts.leave('a')
    expect(await left).toMatchObject({ code: 'CANCELLED' })
    // Without a daemon.
    await hosts.host('a').machines.counted('web', 10)
    hosts.settleMs = 0
    await expectUnmoved()
  })

  it('goes on here when the controller makes another one authoritative, and when the target is ended', async () => {
    hosts.controller.before = (call) => {
      if (call !== 'switchover') return
      hosts.controller.before = () => {}
      throw new AgentError('FAILED_PRECONDITION', 'another one')
    }
    await expect(hosts.move('a', 'b')).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await expectUnmoved()
    expect(new Set(hosts.controller.chain.map((each) => each.split('/')[0]))).toEqual(new Set(['a']))
  })

  it('is refused with a disk that the target has as another file', async () => {
    const { specification = Specification.create() } = hosts.host('a').machines.request()
    const disk = specification.backends['root-file']?.file?.path ?? ''
    const field = 'backends.root-file.file.path'
    await expect(checkShared(specification, US, [])).rejects.toThrow(`${field}: ${disk}: another file than`)
    await checkShared(specification, US, ['root-file'])
    await markDisks(specification, US)
    await checkShared(specification, US, [])
    await expect(checkShared(specification, { ...US, runId: 2n }, [])).rejects.toThrow('another file than')
    await unmarkDisks(specification, US)
    await unmarkDisks(specification, US)
    await expect(checkShared(specification, US, [])).rejects.toThrow('another file than')
    const device = Specification.fromPartial({ backends: { 'root-file': file('/dev/null') } })
    await expect(checkShared(device, US, [])).rejects.toThrow('want it by a name in /dev/disk/by-id/')
    await markDisks(device, US)
    expect(readdirSync(dirname(disk)).filter((name) => name.includes('.move-'))).toEqual([])
  })

  it('is begun by the host alone that was agreed with, as the very run that it has named', async () => {
    const { instances } = await hosts.open('b')
    const target = { properties: { key: 'other' }, migrationTarget: { source: 'a' } }
    const awaiting = await instances.ensure(EnsureInstanceRequest.fromPartial(target), ADMIN)
    expect(awaiting).toMatchObject({ state: State.AWAITING, awaiting: { source: 'a' } })
    expect(awaiting.specification).toBeUndefined()
    expect((await instances.ensure(EnsureInstanceRequest.fromPartial(target), ADMIN)).createdMs).toBe(
      awaiting.createdMs,
    )
    const { advertise } = hosts.host('b').settings
    const connect = async (id: string) => {
      const credentials = await readCredentials(hosts.host(id).settings)
      return await dialHost(advertise, { name: 'b', credentials, signal: neverAborted })
    }
    const [a, c] = [await connect('a'), await connect('c')]
    const start = (connection: typeof a, us: HypervisorID, protocols: object[] = [PROTOCOL]) =>
      clientFor(HypervisorDefinition, connection).startMigration({
        us,
        supportedMigrationProtocol: protocols,
      })
    await expect(start(c, US)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    const text = 'us: a/1 does not run the machine, says the controller'
    // NOT_FOUND is for an instance that is not there yet.
    await expect(start(a, US)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message: text })
    await hosts.controller.ensureVm({ us: { ...US, runId: 7n }, settings: undefined, volumes: [] })
    await expect(start(a, US)).rejects.toThrow(text)
    await hosts.controller.ensureVm({ us: US, settings: undefined, volumes: [] })
    await expect(start(a, { ...US, vmName: 'nothing' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
    for (const none of [
      [],
      [{}],
      [{ qmeuBlock: {} }],
      [{ qmeuBlock: { constraintTls: true, constraintHandover: 3 } }],
    ])
      await expect(start(a, US, none)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect((await start(a, US)).migrationProtocol?.qmeuBlock).toMatchObject({
      ...PROTOCOL.qmeuBlock,
      negotiatedEndpoint: `127.0.0.1:${advertise.port}`,
    })
    const handover = async (connection: typeof a, messages: readonly object[]) => {
      const call = connection.stream(HandoverDefinition.fullName, 'Move')
      for (const message of messages)
        await call.send(MoveRequest.encode(MoveRequest.fromPartial(message)).finish())
      call.end()
      for await (const _ of call.answers);
    }
    await expect(handover(c, [{ plan: { us: US } }])).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await expect(handover(a, [{ plan: { us: { ...US, runId: 2n } } }])).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    await expect(handover(a, [{ piece: Buffer.alloc(1) }])).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
    expect((await instances.get('other', ADMIN)).state).toBe(State.AWAITING)
    const giveUp = (connection: typeof a, key = 'other') =>
      clientFor(InstanceServiceDefinition, connection).remove({ key })
    await expect(giveUp(c)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    expect((await instances.get('other', ADMIN)).state).toBe(State.AWAITING)
    // What was agreed on is for one handover, which ends with its instance.
    await expect(handover(a, [{ plan: { us: US, version: 7 } }])).rejects.toThrow(
      'handover: version 7, want 2',
    )
    await expect(instances.get('other', ADMIN)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await instances.ensure(EnsureInstanceRequest.fromPartial(target), ADMIN)
    await giveUp(a)
    expect(instances.list(ADMIN)).toEqual([])
    a.close()
    c.close()
  })

  it('leaves a machine that runs to its host, also when a controller removes it', async () => {
    for (const id of ['b', 'controller']) {
      const credentials = await readCredentials({ ...hostOf(hosts.authority, id), id })
      const connection = await dialHost(hosts.host('a').settings.advertise, {
        ...{ name: 'a', credentials, signal: neverAborted },
      })
      await expect(
        clientFor(InstanceServiceDefinition, connection).remove({ key: 'web' }),
      ).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
        message: 'instance web: awaits no machine',
      })
      connection.close()
    }
    await expectUnmoved()
  })

  it('is cut at any message, and undone at the target', async () => {
    const { instances } = await hosts.open('b')
    const credentials = await readCredentials(hosts.host('a').settings)
    const target = { properties: { key: 'other' }, migrationTarget: { source: 'a' } }
    const plan = { us: US, version: 2, acceleration: 'tcg' }
    await hosts.controller.ensureVm({ us: US, settings: undefined, volumes: [] })
    const cuts = [
      [{ plan }],
      [{ plan }, { end: {} }],
      [{ plan }, { content: { sizeBytes: 10n } }],
      [{ plan }, { content: { sizeBytes: 10n } }, { piece: Buffer.alloc(11) }],
      [{ plan }, { content: { sizeBytes: 10n } }, { piece: Buffer.alloc(0) }],
      [{ plan }, { content: { sizeBytes: 2n ** 63n } }],
      [{ plan }, { content: { sizeBytes: 10n, ring: {} } }],
      [{ plan }, { content: { sizeBytes: 10n } }, { piece: Buffer.alloc(10) }],
    ]
    for (const messages of cuts) {
      await instances.ensure(EnsureInstanceRequest.fromPartial(target), ADMIN)
      const { advertise } = hosts.host('b').settings
      const connection = await dialHost(advertise, { name: 'b', credentials, signal: neverAborted })
      await clientFor(HypervisorDefinition, connection).startMigration({
        us: US,
        supportedMigrationProtocol: [PROTOCOL],
      })
      const call = connection.stream(HandoverDefinition.fullName, 'Move')
      for (const message of messages)
        await call.send(MoveRequest.encode(MoveRequest.fromPartial(message)).finish())
      call.end()
      const read = async () => {
        for await (const _ of call.answers);
      }
      await expect(read()).rejects.toBeInstanceOf(AgentError)
      await expect(instances.get('other', ADMIN)).rejects.toMatchObject({ code: 'NOT_FOUND' })
      connection.close()
    }
  })

  it('takes memory from the host of the source alone', async () => {
    const before = listeningPorts()
    const read: number[] = []
    hosts.host('b').atStep = async (_, step) => {
      if (step !== 'memory') return
      hosts.host('b').atStep = async () => {}
      for (const port of listeningPorts().filter((each) => !before.includes(each))) {
        const socket = connect({ host: '127.0.0.1', port, localAddress: '127.0.0.2' }).resume()
        await once(socket, 'close')
        read.push(socket.bytesRead)
      }
    }
    await hosts.move('a', 'b')
    expect(read).toEqual([0])
    await hosts.move('b', 'a')
    await expectUnmoved()
  })
})

it('the device that has to leave comes back as it was, once its guest lets it go after the move was given up', {
  timeout: TIMEOUT_MS,
}, async () => {
  const hosts = new MovingHosts(['a', 'b'])
  await hosts.make('a', 'web', {
    board: { machine: 'pc-i440fx-7.2' },
    devices: { vsock: { backend: 'socket', slot: 6, vsock: {} } },
    backends: { socket: { vsockDaemon: {} } },
  })
  const { instances } = await hosts.open('a')
  const now = async () => {
    const { cid, devices, specification } = await instances.get('web', ADMIN)
    return { cid, plug: devices.vsock?.plug, device: specification?.devices.vsock }
  }
  const before = await now()
  expect(before.plug).toBe(Plug.PRESENT)
  await expect(hosts.move('a', 'b', { withoutAgent: true })).rejects.toMatchObject({
    code: 'DEADLINE_EXCEEDED',
    message: 'unplug: device vsock: the guest did not let it go within 10000 ms',
  })
  expect((await now()).plug).toBe(Plug.LEAVING)
  await hosts.host('a').machines.counted('web', 10)
  // QEMU takes it away.
  const reset = ChangeStateRequest.fromPartial({ key: 'web', change: Change.RESET })
  await instances.changeState(reset, ADMIN)
  await expect.poll(now).toEqual(before)
  await hosts.end()
})

it('the name of a disk has to mean the same file at the target', { timeout: TIMEOUT_MS }, async () => {
  const hosts = new MovingHosts(['a', 'b'])
  const [here, there] = ['here', 'there'].map((name) => documentLifePlan(join(hosts.disks, name)))
  hosts.catalogue = here?.catalogue
  const { instances } = await hosts.open('a')
  await DOCUMENT_LIFE.ensure?.(instances, here ?? expect.fail())
  const run = ChangeStateRequest.fromPartial({ key: 'web', change: Change.RUN })
  await instances.changeState(run, ADMIN)
  hosts.catalogue = there?.catalogue
  await expect(hosts.move('a', 'b')).rejects.toThrow('storage[0].source: another disk by now')
  expect((await instances.get('web', ADMIN)).state).toBe(State.RUNNING)
  await hosts.end()
})
