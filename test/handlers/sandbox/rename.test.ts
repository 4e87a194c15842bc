import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { kernelError } from '../../../src/os/errors.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machineWithContainer,
  machineWithSandbox,
  remains,
  renameRequest,
} from '../../support/handlers/machine.ts'
import { isAnswered, OPEN, successorOf } from '../../support/handlers/successor.ts'

const UTS = '/run/sandbox-ns/uts'
const HOSTS = '/run/kata-containers/shared/containers/c1-hosts'

const removed = (containerId: string) => ({ containerId, timeout: 0 })

function idsOf({ context }: Machine): readonly string[] {
  return context.containers.list().map(({ id }) => id)
}

/** Two containers that are running; the first has files of the host at /etc. */
async function pod(options: Parameters<typeof machineWithSandbox>[0] = {}): Promise<Machine> {
  const made = await machineWithSandbox(options)
  await made.os.files.makeDirectories('/run/kata-containers/shared/containers')
  await made.os.files.put(HOSTS, '127.0.0.1 localhost pod\n')
  const request = containerRequest('c1')
  request.OCI?.Mounts.push({ destination: '/etc/hosts', source: HOSTS, type: 'bind', options: ['rbind'] })
  await made.handlers.createContainer(request, neverAborted)
  await made.handlers.createContainer(containerRequest('c2'), neverAborted)
  for (const containerId of ['c1', 'c2']) await made.handlers.startContainer({ containerId }, neverAborted)
  return made
}

describe('Rename', () => {
  it.each([
    [{ hostname: 'x'.repeat(65) }, 'INVALID_ARGUMENT', '65 bytes long, want at most 64'],
    [{ hostname: 'a\0b' }, 'INVALID_ARGUMENT', 'contains a NUL byte'],
    [{ hosts: 'x'.repeat(65_537) }, 'INVALID_ARGUMENT', '65537 bytes long, want at most 65536'],
    [
      { containers: [{ oldId: 'c1', newId: 'd1', hostname: 'own' }] },
      'FAILED_PRECONDITION',
      "container 'c1': has no UTS namespace of its own",
    ],
  ])('refuses %j, and changes nothing', async (request, code, message) => {
    const made = await pod()
    const before = await remains(made)
    await expect(made.handlers.rename(renameRequest({}, request), neverAborted)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(message),
    })
    expect([idsOf(made), await remains(made)]).toEqual([['c1', 'c2'], before])
  })

  it('refuses two contents for one file', async () => {
    const made = await pod()
    const request = containerRequest('c3')
    request.OCI?.Mounts.push({ destination: '/etc/hosts', source: HOSTS, type: 'bind', options: ['rbind'] })
    await made.handlers.createContainer(request, neverAborted)
    const containers = ['c1', 'c3'].map((oldId) => ({ oldId, newId: `${oldId}n`, hosts: `of ${oldId}\n` }))
    const refused = made.handlers.rename(renameRequest({}, { containers }), neverAborted)
    await expect(refused).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining(`shares ${HOSTS} with another one`),
    })
  })

  it('gives the sandbox and its containers other ids, for the next agent too', async () => {
    const before = await pod()
    await before.handlers.rename(renameRequest({ c1: 'd1', c2: 'd2' }, { sandboxId: 'other' }), neverAborted)
    for (const made of [before, await successorOf(before)]) {
      expect(idsOf(made)).toEqual(['d1', 'd2'])
      expect(made.context.sandboxState.view.sandbox?.id).toBe('other')
      expect((await made.handlers.statsContainer({ containerId: 'd1' }, neverAborted)).networkStats).toEqual(
        [],
      )
      await expect(made.handlers.statsContainer({ containerId: 'c1' }, neverAborted)).rejects.toMatchObject({
        code: 'NOT_FOUND',
        message: "container id 'c1': is 'd1' now",
      })
    }
  })

  it('answers an old id NOT_FOUND in each call about a container', async () => {
    const { handlers } = await pod()
    await handlers.rename(renameRequest({ c1: 'd1' }), neverAborted)
    await handlers.rename(renameRequest({ d1: 'e1' }), neverAborted)
    const process = { containerId: 'c1', execId: '' }
    for (const containerId of ['c1', 'd1']) {
      const of = { ...process, containerId }
      for (const refused of [
        handlers.startContainer({ containerId }, neverAborted),
        handlers.pauseContainer({ containerId }, neverAborted),
        handlers.execProcess(execRequest(containerId, 'x'), neverAborted),
        handlers.signalProcess({ ...of, signal: 9 }, neverAborted),
        handlers.waitProcess(of, neverAborted),
        handlers.readStdout({ ...of, len: 1 }, neverAborted),
        handlers.removeContainer(removed(containerId), neverAborted),
        handlers.rename(renameRequest({ [containerId]: 'f1' }), neverAborted),
      ])
        await expect(refused).rejects.toMatchObject({ code: 'NOT_FOUND' })
    }
  })

  it('takes the new id of a container as the exec id of its first process', async () => {
    const { handlers, runtime } = await pod()
    const waited = handlers.waitProcess({ containerId: 'c2', execId: 'c2' }, neverAborted)
    await new Promise(setImmediate)
    await handlers.rename(renameRequest({ c2: 'd2' }), neverAborted)
    runtime.end(runtime.last().pid, { code: 4 })
    expect((await waited).status).toBe(4)
    const again = await handlers.waitProcess({ containerId: 'd2', execId: 'd2' }, neverAborted)
    expect(again.status).toBe(4)
  })

  it('tells events, exits and kills because memory ran out by the new id', async () => {
    const made = await pod()
    const { handlers, runtime, context } = made
    await handlers.execProcess(execRequest('c1', 'x1'), neverAborted)
    runtime.end(runtime.last().pid, { code: 1 })
    await expect.poll(() => context.events.exits()).toHaveLength(1)
    context.oom.queue.add({ containerId: 'c1', kills: 1n, key: 'c1', createdNs: createdNs(made) })
    await handlers.rename(renameRequest({ c1: 'd1' }, { sandboxId: 'other' }), neverAborted)
    await handlers.execProcess(execRequest('d1', 'x2'), neverAborted)
    runtime.end(runtime.last().pid, { code: 2 })
    await expect.poll(() => context.events.exits()).toHaveLength(2)
    expect(context.events.exits().map(({ containerId, execId }) => [containerId, execId])).toEqual([
      ['d1', 'x1'],
      ['d1', 'x2'],
    ])
    const told = context.events.after(0n, 100).events.flatMap(({ renamed }) => renamed ?? [])
    expect(told).toEqual([{ sandboxId: 'other', containers: [{ oldId: 'c1', newId: 'd1' }] }])
    expect((await handlers.getOomEvent({}, neverAborted)).containerId).toBe('d1')
  })

  it('lets ids change places, and refuses what would give two containers one id', async () => {
    const made = await pod()
    const { handlers, context } = made
    await handlers.rename(renameRequest({ c1: 'c2', c2: 'c1' }), neverAborted)
    expect(context.containers.list().map(({ id, record }) => [record.key, id])).toEqual([
      ['c1', 'c2'],
      ['c2', 'c1'],
    ])
    await handlers.execProcess(execRequest('c1', 'x1'), neverAborted)
    for (const [request, code, message] of [
      [
        renameRequest({ c1: 'c2' }),
        'ALREADY_EXISTS',
        "containers[0].new_id: 'c2' is the id of another container",
      ],
      [renameRequest({ c1: 'c1' }), 'INVALID_ARGUMENT', "containers[0].new_id: 'c1' is its id"],
      [
        renameRequest({ c1: 'd1', c2: 'd1' }),
        'INVALID_ARGUMENT',
        "containers[1].new_id: 'd1' stands there twice",
      ],
      [renameRequest({ c1: 'x1' }), 'ALREADY_EXISTS', "containers[0].new_id: 'x1' is the exec id"],
      [renameRequest({ c9: 'd1' }), 'NOT_FOUND', "containers[0].old_id: no container 'c9'"],
      [renameRequest({ c1: '../d' }), 'INVALID_ARGUMENT', "containers[0].new_id: '../d': invalid"],
      [renameRequest({ c1: 'shared' }), 'INVALID_ARGUMENT', "containers[0].new_id: 'shared': reserved"],
      [renameRequest({}, { sandboxId: 'a b' }), 'INVALID_ARGUMENT', "sandbox_id: 'a b': invalid"],
      [renameRequest({}, { hostname: 'h'.repeat(65) }), 'INVALID_ARGUMENT', 'hostname: 65 bytes long'],
      [renameRequest({}, { hosts: 'h'.repeat(65_537) }), 'INVALID_ARGUMENT', 'hosts: 65537 bytes long'],
    ] as const) {
      await expect(handlers.rename(request, neverAborted)).rejects.toMatchObject({
        code,
        message: expect.stringContaining(message),
      })
    }
    expect(idsOf(made)).toEqual(['c2', 'c1'])
  })

  it('keeps the first id of a container until that is removed', async () => {
    const made = await pod()
    const { handlers } = made
    await handlers.rename(renameRequest({ c1: 'd1' }), neverAborted)
    await expect(handlers.createContainer(containerRequest('c1'), neverAborted)).rejects.toMatchObject({
      code: 'ALREADY_EXISTS',
      message: expect.stringContaining("container 'd1'"),
    })
    await expect(handlers.createContainer(containerRequest('d1'), neverAborted)).rejects.toThrow(
      'already exists',
    )
    await handlers.removeContainer(removed('d1'), neverAborted)
    made.os.clock.advance(1)
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    expect(idsOf(await successorOf(made))).toEqual(['c1', 'c2'])
  })

  it('is refused while a container is being changed, and during an exec', async () => {
    const made = await pod()
    const { handlers, runtime } = made
    const during = async (verb: string, work: () => Promise<unknown>, message: string) => {
      const reached = Promise.withResolvers<void>()
      const held = Promise.withResolvers<void>()
      runtime.refuse = async (called) => {
        if (called !== verb) return undefined
        reached.resolve()
        await held.promise
        return undefined
      }
      const working = work()
      await reached.promise
      await expect(handlers.rename(renameRequest({ c1: 'd1' }), neverAborted)).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message,
      })
      held.resolve()
      await working
    }
    await during(
      'exec',
      () => handlers.execProcess(execRequest('c2', 'x'), neverAborted),
      "container 'c2': gets a process",
    )
    await during(
      'pause',
      () => handlers.pauseContainer({ containerId: 'c2' }, neverAborted),
      "container 'c2': is updating",
    )
    await during(
      'create',
      () => handlers.createContainer(containerRequest('c3'), neverAborted),
      "container 'c3': is creating",
    )
    await during(
      'delete',
      () => handlers.removeContainer(removed('c3'), neverAborted),
      "container 'c3': is removing",
    )
    await handlers.rename(renameRequest({ c1: 'd1' }), neverAborted)
    expect(idsOf(made)).toEqual(['d1', 'c2'])
  })

  it('renames a thousand containers in one write', async () => {
    const made = await machineWithSandbox()
    const names = Array.from({ length: 1000 }, (_, number) => `c${number}`)
    const ids = Object.fromEntries(names.map((name) => [name, `new-${name}`]))
    for (const name of names) {
      const container = made.context.containers.add(name, `/pod/${name}`)
      container.record.save({ createdNs: 1n })
      Object.defineProperty(container, 'isInTransition', { value: false })
    }
    await made.handlers.rename(renameRequest(ids), neverAborted)
    expect(idsOf(made)).toEqual(names.map((name) => `new-${name}`))
    expect(
      made.context.events.after(0n, 100).events.flatMap(({ renamed }) => renamed?.containers ?? []),
    ).toHaveLength(1000)
  })

  it('changes host name, DNS and /etc/hosts, and brings them back when a step fails', async () => {
    const made = await pod()
    const { handlers, os, state } = made
    const hosts = '127.0.0.1 other\n'
    const request = renameRequest({ c1: 'd1' }, { hostname: 'other', hosts, dns: ['nameserver 10.9.9.9'] })
    const old = ['pod', '127.0.0.1 localhost pod\n', 'nameserver 10.0.0.1\n']
    const seen = async () => [
      os.mounts.hostnameOf.get(UTS),
      await os.files.readText(HOSTS),
      await os.files.readText('/etc/resolv.conf'),
    ]
    const fail = (isNow: boolean) => {
      if (isNow) throw kernelError('change', 'it', 'EIO')
    }
    const before = await remains(made)
    for (const step of ['set hostname', 'write', 'mount', 'state']) {
      os.mounts.failWith = (call) => (call === step ? 'EIO' : undefined)
      os.files.onWrite = (path, data) => fail(step === 'write' && path === HOSTS && data === hosts)
      state.beforeChange = () => fail(step === 'state' && os.mounts.hostnameOf.get(UTS) === 'other')
      await expect(handlers.rename(request, neverAborted)).rejects.toThrow('EIO')
      state.beforeChange = () => {}
      expect([step, await seen(), idsOf(made)]).toEqual([step, old, ['c1', 'c2']])
      expect((await remains(made)).mounts).toEqual(before.mounts)
    }
    os.mounts.failWith = () => undefined
    await handlers.rename(request, neverAborted)
    expect(await seen()).toEqual(['other', '127.0.0.1 other\n', 'nameserver 10.9.9.9'])
    await handlers.destroySandbox({}, neverAborted)
    expect(await os.files.readText('/etc/resolv.conf')).toBe('nameserver 10.0.0.1\n')
    expect(made.state.names().filter((name) => name === 'names')).toEqual([])
  })

  it('is undone by the next agent unless its names were set, and is answered then', async () => {
    const before = await pod()
    const { names } = before.context.containers
    const hostnames = [{ key: '', name: 'pod' }]
    const files = [{ path: HOSTS, content: Buffer.from('127.0.0.1 localhost pod\n') }]
    names.saveBefore({ hostnames, files, mountsResolvConf: true })
    await before.os.mounts.hostnameIn(UTS, 'other')
    await before.os.files.write(HOSTS, '127.0.')
    const after = await successorOf(before)
    expect(after.os.mounts.hostnameOf.get(UTS)).toBe('pod')
    expect(await after.os.files.readText(HOSTS)).toBe('127.0.0.1 localhost pod\n')
    expect(after.context.containers.names.before).toBeUndefined()
    await after.handlers.rename(renameRequest({ c1: 'd1' }), neverAborted, OPEN)
    const last = await successorOf(after)
    expect(idsOf(last)).toEqual(['d1', 'c2'])
    expect(isAnswered(last)).toBe(true)
  })

  it('lets a call of before that is sent again find its container', async () => {
    const before = await pod()
    before.openCalls.push({ number: OPEN, containerId: 'c1' })
    await before.handlers.rename(renameRequest({ c1: 'c2', c2: 'c1' }), neverAborted)
    before.openCalls.push({ number: 7n, containerId: 'c1' })
    await before.handlers.rename(renameRequest({ c1: 'd2', c2: 'd1' }), neverAborted)
    const { names } = (await successorOf(before)).context.containers
    const sent = (number: bigint, execId: string) => {
      const request = { containerId: 'c1', execId }
      names.bringUpToDate(number, request)
      return request
    }
    expect(sent(OPEN, 'c1')).toEqual({ containerId: 'd1', execId: 'd1' })
    expect(sent(7n, 'x')).toEqual({ containerId: 'd2', execId: 'x' })
    expect(sent(8n, 'c1')).toEqual({ containerId: 'c1', execId: 'c1' })
  })

  it('needs a sandbox', async () => {
    const made = await machineWithContainer()
    await made.handlers.destroySandbox({}, neverAborted)
    await expect(made.handlers.rename(renameRequest({}), neverAborted)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'sandbox: not active (destroyed)',
    })
  })
})

function createdNs({ context }: Machine): bigint {
  return context.containers.tryGet('c1')?.record.fields.createdNs ?? 0n
}
