import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import {
  GetEventsResponse,
  IntrospectionDefinition,
  ReadProfileRequest_Kind as ProfileKind,
  Process_Role as Role,
  StreamEventsRequest,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { type RunningServices, runServices } from '../../support/agent/run-services.ts'
import { containerRequest, execRequest, sandboxRequest } from '../../support/handlers/machine.ts'
import { grpcClient } from '../../support/rpc/grpc-client.ts'

/** A real session would end V8's coverage of this run; test/host/api/agent-introspection.test.ts has one. */
vi.mock('node:inspector/promises', () => ({
  Session: class {
    connect() {}
    disconnect() {}
    on() {}
    async post(method: string) {
      return method === 'Profiler.stop' ? { profile: { nodes: [] } } : {}
    }
  },
}))

let services: RunningServices

beforeEach(async () => {
  services = await runServices()
})

afterEach(() => services.close())

describe.each(['ttrpc', 'grpc'] as const)('introspection over %s', (framing) => {
  const introspection = () => clientFor(IntrospectionDefinition, services.connections[framing])
  const agent = () => clientFor(AgentServiceDefinition, services.connections[framing])

  it('returns the versions of the agent, of its interface and of Node.js', async () => {
    const versions = { agentVersion: '1.2.3', apiVersion: '0.0.1', nodeVersion: process.version }
    expect(await introspection().getVersion({})).toEqual(versions)
  })

  describe('of a container with an added process', () => {
    beforeEach(async () => {
      await agent().createSandbox(sandboxRequest())
      await agent().createContainer(containerRequest('c1'))
      await agent().startContainer({ containerId: 'c1' })
      await agent().execProcess(execRequest('c1', 'e1'))
    })

    it('reports the sandbox and its containers', async () => {
      expect(await introspection().getSandbox({})).toMatchObject({
        ...{ state: 'active', id: 'pod', containers: 1, agentRestarts: 0, guestTimeMs: 1_700_000_000_000n },
        ...{ namespaces: ['/run/sandbox-ns/ipc', '/run/sandbox-ns/uts'], streamGraceMs: 0n },
      })
      const { containers } = await introspection().listContainers({})
      expect(containers).toMatchObject([
        { containerId: 'c1', state: 'running', initPid: 1001, cgroupPath: '/containers/c1', processes: 2 },
      ])
      expect(containers).toMatchObject([{ bundle: '/run/kata-containers/c1', vfioDevices: [] }])
      expect(containers[0]?.exitStatus).toBeUndefined()
    })

    it('reports the processes, and the other ones in the cgroup', async () => {
      const { processes } = await introspection().listProcesses({ containerId: 'c1' })
      expect(processes).toMatchObject([
        { role: Role.INIT, containerId: 'c1', execId: '', pid: 1001, hasTerminal: false },
        { role: Role.EXEC, containerId: 'c1', execId: 'e1', pid: 1002 },
      ])
    })

    it('reports a paused container, and its processes as paused', async () => {
      await agent().pauseContainer({ containerId: 'c1' })
      expect(await introspection().listContainers({})).toMatchObject({ containers: [{ state: 'paused' }] })
      const { processes } = await introspection().listProcesses({ containerId: 'c1' })
      expect(processes.map(({ paused }) => paused)).toEqual([true, true])
    })

    it('refuses a container that does not exist', async () => {
      const unknown = { code: 'NOT_FOUND', message: 'Invalid container id' }
      await expect(introspection().listContainers({ containerId: 'c9' })).rejects.toMatchObject(unknown)
      await expect(introspection().listProcesses({ containerId: 'c9' })).rejects.toMatchObject(unknown)
    })

    it('reports starts and ends as events, and ends as exits until they are acknowledged', async () => {
      services.runtime.end(1002, { signal: 9 })
      const { events } = await eventsUntil(4)
      expect(events).toMatchObject([
        { sequence: 1n, processStarted: { containerId: 'c1', execId: '', pid: 1001 } },
        { sequence: 2n, processStarted: { containerId: 'c1', execId: 'e1', pid: 1002 } },
        {
          sequence: 3n,
          processExited: {
            ...{ containerId: 'c1', execId: 'e1', pid: 1002, status: 137, signal: 9, oomKilled: false },
            resources: { userTimeUs: 1000n, systemTimeUs: 500n, maxResidentKib: 1024n },
          },
        },
      ])
      const { exits } = await introspection().listExits({})
      expect(exits).toMatchObject([{ sequence: 3n, execId: 'e1' }])
      expect(await introspection().listExits({ afterSequence: 3n })).toMatchObject({ exits: [] })
      expect(await introspection().listExits({ containerId: 'c2' })).toMatchObject({ exits: [] })
      expect(await introspection().acknowledgeExits({ upToSequence: 3n })).toEqual({ acknowledged: 1 })
      expect(await introspection().listExits({})).toEqual({ exits: [], dropped: 0n })
      expect(await agent().waitProcess({ containerId: 'c1', execId: 'e1' })).toEqual({ status: 137 })
    })

    it('refuses to read output again when the setting is off', async () => {
      await expect(introspection().readOutput({ containerId: 'c1', stream: 'stdout' })).rejects.toMatchObject(
        {
          code: 'FAILED_PRECONDITION',
          message: 'agent.output_replay_bytes: 0, output is not kept',
        },
      )
    })

    it('reports the network settings that the agent has made', async () => {
      services.sandbox.events.add({ networkChanged: { settings: [], omitted: 0 } })
      const { interfaces, settings } = await introspection().getNetwork({})
      expect(interfaces).toMatchObject([{ index: 1, name: 'lo', source: 'kernel' }])
      expect(settings).toEqual([])
    })

    it('lists a call that waits, without itself', async () => {
      const waiting = agent().waitProcess({ containerId: 'c1', execId: 'e1' })
      const [call] = await callsUntil(1)
      expect(call).toMatchObject({
        ...{ method: 'grpc.AgentService/WaitProcess', step: 'exit e1', framing, recovery: 'journaled' },
        ...{ connection: 'unix', containerId: 'c1', execId: 'e1', callerLeft: false },
      })
      expect((await introspection().getStacks({})).calls).toMatchObject([{ step: 'exit e1' }])
      services.runtime.end(1002, { code: 0 })
      await waiting
      expect(await introspection().listCalls({})).toEqual({ calls: [], failed: [] })
    })

    async function eventsUntil(most: number) {
      const events: GetEventsResponse['events'] = []
      for (let afterSequence = 0n; events.length < most - 1; ) {
        const answer = await introspection().getEvents({ afterSequence, timeoutMs: 1000 })
        events.push(...answer.events)
        afterSequence = answer.lastSequence
      }
      return { events }
    }

    async function callsUntil(count: number) {
      for (;;) {
        const { calls } = await introspection().listCalls({})
        if (calls.filter(({ step }) => step.startsWith('exit')).length >= count) return calls
      }
    }
  })

  it('refuses sequence numbers of the future, and waits that are too long', async () => {
    services.sandbox.events.add({ clockSet: { stepMs: 1n } })
    await expect(introspection().getEvents({ afterSequence: 2n })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'after_sequence: 2, want at most 1, the last event',
    })
    await expect(introspection().acknowledgeExits({ upToSequence: 9n })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'up_to_sequence: 9, want at most 1, the last event',
    })
    await expect(introspection().getEvents({ timeoutMs: 60_001 })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'timeout_ms: 60001, want at most 60000',
    })
    await expect(introspection().getEvents({ limit: 257 })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'limit: 257, want at most 256',
    })
  })

  it('waits for an event, and for no longer than asked', async () => {
    const waiting = introspection().getEvents({ timeoutMs: 1000 })
    await waitingCalls(1)
    services.sandbox.events.add({ clockSet: { stepMs: 5n } })
    expect(await waiting).toMatchObject({ events: [{ clockSet: { stepMs: 5n } }], lastSequence: 1n })
    const late = introspection().getEvents({ afterSequence: 1n, timeoutMs: 1000 })
    await waitingCalls(1)
    services.os.clock.advance(1000)
    expect(await late).toEqual({ events: [], lastSequence: 1n, gap: undefined })
  })

  it('refuses more than 64 waits for events', async () => {
    const waits = Array.from({ length: 64 }, () => introspection().getEvents({ timeoutMs: 1000 }))
    await waitingCalls(64)
    await expect(introspection().getEvents({ timeoutMs: 1000 })).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'events: 64 calls wait for them, want no more',
    })
    services.sandbox.events.add({ clockSet: { stepMs: 5n } })
    expect(await Promise.all(waits)).toHaveLength(64)
  })

  it('reports by how much SetGuestDateTime has moved the clock', async () => {
    const day = 86_400_000
    await agent().setGuestDateTime({ Sec: BigInt(Math.floor((Date.now() + day) / 1000)), Usec: 0n })
    const { events } = await introspection().getEvents({})
    const steps = events.flatMap(({ clockSet }) => (clockSet === undefined ? [] : [Number(clockSet.stepMs)]))
    expect(steps).toEqual([expect.closeTo(day, -5)])
  })

  it('reports that events were dropped', async () => {
    for (let n = 0; n < 3000; n++) services.sandbox.events.add({ clockSet: { stepMs: 0n } })
    const { events, gap } = await introspection().getEvents({ afterSequence: 1n, limit: 1 })
    expect(gap).toEqual({ firstSequence: 2n, lastSequence: 1976n })
    expect(events).toMatchObject([{ sequence: 1977n }])
  })

  it('reports the features of the guest, or why they are missing', async () => {
    const { capabilities } = await introspection().getCapabilities({})
    const one = (name: string) => capabilities.find((each) => each.name === name)
    expect(one('grpc.AgentService/CreateContainer')).toMatchObject({ enabled: true, reason: '' })
    expect(one('blk-ccw')).toMatchObject({ enabled: false, reason: 'only supported on s390x' })
    expect(one('vsock')).toMatchObject({ enabled: false, reason: '/dev/vsock does not exist' })
  })

  it.each([
    ['cgroup v2', { 'cgroup.controllers': 'cpuset cpu io memory pids\n' }, ''],
    [
      'a cgroup v2 without some',
      { 'cgroup.controllers': 'cpu io pids\n' },
      'cgroup v2 has no controller for cpuset, memory',
    ],
    ['cgroup v1', { 'cpu/tasks': '', 'cpuset/tasks': '', 'memory/tasks': '', 'pids/tasks': '' }, ''],
    [
      'a cgroup v1 without one',
      { 'cpu/tasks': '', 'cpuset/tasks': '', 'pids/tasks': '' },
      'cgroup v1 has no controller for memory',
    ],
  ])('reports whether %s has the limits of containers', async (_what, files, reason) => {
    const { files: guest } = services.os
    await guest.removeTree('/sys/fs/cgroup')
    for (const [name, text] of Object.entries(files)) await guest.put(`/sys/fs/cgroup/${name}`, text)
    const { capabilities } = await introspection().getCapabilities({})
    const limits = capabilities.find(({ name }) => name === 'limits of containers')
    expect(limits).toMatchObject({ enabled: reason === '', reason })
  })

  it('reports the last 16 failed calls, equal ones once', async () => {
    const start = (containerId: string) => expect(agent().startContainer({ containerId })).rejects.toThrow()
    for (const containerId of ['c1', 'c2', 'c1']) await start(containerId)
    const { failed } = await introspection().listCalls({})
    const { code, message } = await agent()
      .startContainer({ containerId: 'c1' })
      .catch((error) => error)
    expect(failed).toMatchObject([
      { method: 'grpc.AgentService/StartContainer', containerId: 'c2', execId: '', callerFault: true },
      { containerId: 'c1', code, error: message },
    ])
    for (let n = 3; n < 40; n++) await start(`c${n}`)
    const ids = (await introspection().listCalls({})).failed.map(({ containerId }) => containerId)
    expect(ids).toEqual(Array.from({ length: 16 }, (_, n) => `c${n + 24}`))
  })

  it('takes a CPU profile, and one at a time', async () => {
    const taking = introspection().readProfile({ kind: ProfileKind.CPU, durationMs: 50 })
    await sleepingUntil(1)
    await expect(introspection().readProfile({ kind: ProfileKind.HEAP })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'profile cpu-1: is being taken',
    })
    services.os.clock.advance(50)
    const first = await taking
    expect(first).toMatchObject({ id: 'cpu-1', sizeBytes: BigInt(first.data.length) })
    expect(JSON.parse(Buffer.from(first.data).toString())).toHaveProperty('nodes')
    await expect(introspection().readProfile({ kind: ProfileKind.CPU })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'profile cpu-1: not discarded yet, want it read first',
    })
    await expect(introspection().readProfile({ id: 'cpu-1', offset: 1n << 40n })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
    const end = await introspection().readProfile({ id: 'cpu-1', offset: first.sizeBytes, discard: true })
    expect(end.data).toHaveLength(0)
    await expect(introspection().readProfile({ id: 'cpu-1' })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'profile "cpu-1": not found',
    })
  })

  it('refuses a kind of profile that does not exist, and an id with a kind', async () => {
    const payload = Buffer.from('088d01', 'hex')
    const { fullName, methods } = IntrospectionDefinition
    await expect(
      services.connections[framing].call(fullName, methods.readProfile.name, payload),
    ).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message: 'kind: 141, want CPU or HEAP' })
    await expect(introspection().readProfile({ kind: ProfileKind.HEAP, id: 'heap-1' })).rejects.toMatchObject(
      { code: 'INVALID_ARGUMENT', message: 'id: "heap-1", want none with a kind' },
    )
  })

  it('drops a profile that is not read for a minute', async () => {
    const taking = introspection().readProfile({ kind: ProfileKind.CPU, durationMs: 50 })
    await sleepingUntil(1)
    services.os.clock.advance(50)
    await taking
    services.os.clock.advance(60_000)
    await expect(introspection().readProfile({ id: 'cpu-1' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(services.os.streams.openFds).toEqual([])
  })

  it('refuses a snapshot of the heap without the memory for it', async () => {
    await services.os.files.put('/proc/meminfo', 'MemAvailable:   1024 kB\n')
    await expect(introspection().readProfile({ kind: ProfileKind.HEAP })).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: expect.stringMatching(/^memory: 1 MiB available, want \d+ MiB for a snapshot$/),
    })
    expect(services.os.streams.openFds).toEqual([])
  })

  it('measures the event loop while it is asked', async () => {
    const measuring = introspection().getLoopHistogram({ durationMs: 30 })
    await sleepingUntil(1)
    services.os.clock.advance(30)
    expect(await measuring).toMatchObject({ maxUs: expect.any(BigInt), residentBytes: expect.any(BigInt) })
    await expect(introspection().getLoopHistogram({ durationMs: 60_001 })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'duration_ms: 60001, want at most 60000',
    })
  })

  async function sleepingUntil(count: number) {
    while (services.os.clock.sleeping < count) await introspection().getVersion({})
  }

  async function waitingCalls(count: number) {
    const waiting = async () =>
      (await introspection().listCalls({})).calls.filter(({ method }) => method.endsWith('/GetEvents'))
    while ((await waiting()).length < count || services.os.clock.sleeping < count);
  }
})

describe('StreamEvents', () => {
  const NAME = 'microvm.agent.v1.Introspection/StreamEvents'

  it('sends past events, then new ones', async () => {
    services.sandbox.events.add({ clockSet: { stepMs: 1n } })
    const { client } = grpcClient(services.path)
    const call = client.makeServerStreamRequest(`/${NAME}`, encode, decode, { afterSequence: 0n })
    const messages = call.iterator()
    expect((await messages.next()).value).toMatchObject({ events: [{ clockSet: { stepMs: 1n } }] })
    services.sandbox.events.add({ clockSet: { stepMs: 2n } })
    expect((await messages.next()).value).toMatchObject({ events: [{ sequence: 2n }], lastSequence: 2n })
    call.on('error', () => {})
    call.cancel()
    client.close()
  })

  it('refuses a sequence number of the future', async () => {
    const { client } = grpcClient(services.path)
    const call = client.makeServerStreamRequest(`/${NAME}`, encode, decode, { afterSequence: 7n })
    const failure = new Promise((resolve) => call.on('error', resolve))
    call.resume()
    expect(await failure).toMatchObject({ code: 3, details: expect.stringContaining('after_sequence: 7') })
    client.close()
  })

  it('refuses all but 8 of a thousand streams on a connection', async () => {
    const { client } = grpcClient(services.path)
    const refused: unknown[] = []
    const all = Promise.withResolvers<void>()
    const calls = Array.from({ length: 1000 }, () => {
      const call = client.makeServerStreamRequest(`/${NAME}`, encode, decode, { afterSequence: 0n })
      call.on('error', (error) => {
        if (refused.push(error) === 992) all.resolve()
      })
      return call.resume()
    })
    await all.promise
    expect(refused[0]).toMatchObject({ code: 8, details: '8 streams are open on this connection' })
    for (const call of calls) call.cancel()
    client.close()
  })

  it('is UNIMPLEMENTED over ttRPC', async () => {
    const { ttrpc } = services.connections
    const request = StreamEventsRequest.encode({ afterSequence: 0n }).finish()
    const [service = '', method = ''] = NAME.split('/')
    await expect(ttrpc.call(service, method, request)).rejects.toMatchObject({ code: 'UNIMPLEMENTED' })
  })

  const encode = (request: StreamEventsRequest) => Buffer.from(StreamEventsRequest.encode(request).finish())
  const decode = (bytes: Buffer) => GetEventsResponse.decode(bytes)
})
