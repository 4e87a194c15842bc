import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import {
  AllocatePortRequest,
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  EnsureInstanceRequest,
  PlugRequest,
  State,
  UnplugRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Caller } from '../../../src/host/instance/instances.ts'
import { MockInstances } from '../../../src/host/service/mock-instances.ts'

const ADMIN: Caller = { tenant: undefined, signal: neverAborted, inStep: () => {} }
const ANNE: Caller = { ...ADMIN, tenant: 'anne' }
const BOB: Caller = { ...ADMIN, tenant: 'bob' }

function request(key: string, tenant = 'anne', memoryMib = 256n) {
  return EnsureInstanceRequest.fromPartial({
    properties: { key, tenant },
    specification: {
      board: { machine: 'pc-q35-7.2', memoryMib, cpus: 1, kernel: '/boot/vmlinuz' },
      devices: { console: { backend: 'output', serial: {} } },
      backends: { output: { console: {} } },
    },
  })
}

describe('MockInstances', () => {
  it('makes one instance of equal requests, and refuses another content', async () => {
    const instances = new MockInstances()
    const made = await instances.ensure(request('a'), ANNE)
    expect(made).toMatchObject({ state: State.PAUSED, devices: { console: { plug: 1 } } })
    expect(await instances.ensure(request('a'), ANNE)).toBe(made)
    await expect(instances.ensure(request('a', 'anne', 512n), ANNE)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'instance a: board.memory_mib: differs from the present one',
    })
    expect(instances.list(ADMIN)).toEqual([made])
  })

  it('hides the instances of other tenants', async () => {
    const instances = new MockInstances()
    await instances.ensure(request('a'), ANNE)
    await expect(instances.get('a', BOB)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await expect(instances.ensure(request('a', 'bob'), BOB)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    expect(instances.list(BOB)).toEqual([])
    const watched = []
    for await (const answer of instances.watch({ after: 0n, once: true }, BOB)) watched.push(answer)
    expect(watched).toEqual([])
  })

  it('plugs and unplugs only while a machine is there', async () => {
    const instances = new MockInstances()
    await instances.ensure(request('a'), ANNE)
    const plug = PlugRequest.fromPartial({
      key: 'a',
      deviceKey: 'disk',
      device: { backend: 'file', disk: { serial: 'd' } },
      backend: { file: { path: '/disk', access: 2 } },
    })
    expect((await instances.plug(plug, ANNE)).specification?.backends).toHaveProperty('file')
    const unplug = UnplugRequest.fromPartial({ key: 'a', deviceKey: 'disk' })
    expect((await instances.unplug(unplug, ANNE)).specification?.backends).not.toHaveProperty('file')
    await instances.changeState(ChangeStateRequest.fromPartial({ key: 'a', change: Change.KILL }), ANNE)
    await expect(instances.plug(plug, ANNE)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    const { bootId } = await instances.get('a', ANNE)
    const run = ChangeStateRequest.fromPartial({ key: 'a', change: Change.RUN })
    const again = await instances.changeState(run, ANNE)
    expect(again.state).toBe(State.RUNNING)
    expect(again.bootId).not.toBe(bootId)
  })

  it('tells changes by their sequence, and how many were kept no longer', async () => {
    const instances = new MockInstances()
    await instances.ensure(request('a'), ANNE)
    for (let count = 0; count < 1024; count += 1) {
      const change = count % 2 === 0 ? Change.RUN : Change.PAUSE
      await instances.changeState(ChangeStateRequest.fromPartial({ key: 'a', change }), ANNE)
    }
    const answers = []
    for await (const answer of instances.watch({ after: 1n, once: true }, ANNE)) answers.push(answer)
    expect(answers).toMatchObject([{ lost: 1n }])
    expect(answers[0]?.changes[0]?.sequence).toBe(3n)
    expect(answers[0]?.changes).toHaveLength(1024)
  })

  it('sends what a stream has carried from an offset on', async () => {
    const instances = new MockInstances()
    await instances.ensure(request('a'), ANNE)
    const allocate = AllocatePortRequest.fromPartial({ key: 'a', container: 'c', stream: 'stdout' })
    const { port } = await instances.allocatePort(allocate, ANNE)
    instances.write('a', port, Buffer.from('hello'))
    const stream = instances.attach({ key: 'a', port, offset: 2n }, ANNE)
    expect(await stream.next()).toMatchObject({ value: { offset: 2n, data: Buffer.from('llo') } })
    const next = stream.next()
    await instances.remove('a', ANNE)
    expect(await next).toMatchObject({ done: true })
  })
})
