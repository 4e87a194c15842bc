import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import {
  type Event,
  IntrospectionDefinition,
  ReadProfileRequest_Kind as ProfileKind,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { Stage as ContainerStage } from '../../../src/gen/state/host/linuxcontainer.ts'
import { Stage as PodStage } from '../../../src/gen/state/host/pod.ts'
import { Stage as ProcessStage } from '../../../src/gen/state/host/process.ts'
import { askGuest } from '../../../src/host/migration/payloads/ask-guest.ts'
import { restoreInstance, saveInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import { type AgentPod, initPidOf, startPod } from '../../support/host/agent-pod.ts'
import { type HostPorts, makeHostPorts } from '../../support/host/host-ports.ts'
import { FACTS } from '../../support/host-wing/machine-facts.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'
import { ReflectingClient } from './reflecting-client.ts'

const SERVICE = 'microvm.agent.v1.Introspection'

describe('an agent with a container, asked what it does', () => {
  let host: HostPorts
  let pod: AgentPod
  let curl: ReflectingClient
  let connection: ReturnType<typeof grpcConnection>
  let introspection: ServiceClient<typeof IntrospectionDefinition>

  beforeAll(async () => {
    host = makeHostPorts({ output_replay_bytes: '1000' })
    pod = await startPod({ settings: host.settings })
    curl = new ReflectingClient(pod.started.path)
    connection = grpcConnection(pod.started.path)
    introspection = clientFor(IntrospectionDefinition, connection)
    await pod.run('c1', ['sh', '-c', 'SECRET=hidden; sleep 1000 & wait'])
    await pod.add('c1', 'e1', ['sleep', '1000'])
  })

  afterAll(async () => {
    curl?.close()
    connection?.close()
    await pod?.stop()
    host?.remove()
  })

  /** For each call, the request with a non-empty answer, and a part of that answer. */
  const CALLS: Readonly<Record<string, readonly [request: object, answer: object]>> = {
    GetVersion: [{}, { apiVersion: '0.0.1' }],
    GetCapabilities: [
      {},
      { capabilities: expect.arrayContaining([expect.objectContaining({ name: 'virtio-fs' })]) },
    ],
    GetSandbox: [{}, { state: 'active', id: 'pod', containers: 1 }],
    ListContainers: [{}, { containers: [expect.objectContaining({ containerId: 'c1', state: 'running' })] }],
    ListProcesses: [{}, { processes: expect.arrayContaining([expect.objectContaining({ execId: 'e1' })]) }],
    ListMounts: [{}, { mounts: expect.arrayContaining([expect.objectContaining({ mountPoint: '/proc' })]) }],
    ListDevices: [{}, { devices: expect.arrayContaining([expect.objectContaining({ name: 'lo' })]) }],
    GetNetwork: [{}, { interfaces: expect.arrayContaining([expect.objectContaining({ name: 'lo' })]) }],
    ListCalls: [{}, {}],
    ListExits: [{}, {}],
    AcknowledgeExits: [{}, {}],
    GetEvents: [{}, { events: expect.any(Array) }],
    StreamEvents: [{}, { events: expect.any(Array) }],
    GetStacks: [{}, { threads: expect.any(Array), loopResources: expect.any(Array) }],
    ReadProfile: [{ kind: 'CPU', durationMs: 10, discard: true }, { id: expect.stringMatching(/^cpu-/) }],
    ReadOutput: [{ containerId: 'c1', stream: 'stdout' }, {}],
    SignalOnHangup: [{ containerId: 'c1', execId: 'e1' }, {}],
    GetLoopHistogram: [{ durationMs: 50 }, { heapUsedBytes: expect.any(String) }],
  }

  it.each(Object.entries(CALLS))(
    'answers %s to a client that knows it from reflection',
    async (name, call) => {
      const [request, answer] = call
      expect(await curl.call(SERVICE, name, { ...request })).toMatchObject([answer])
    },
  )

  it('has no other call', async () => {
    const names = (await curl.methods(SERVICE)).map(({ name }) => name)
    expect(names.toSorted()).toEqual(Object.keys(CALLS).toSorted())
  })

  it('reports the processes, with those that a container has started itself', async () => {
    const { processes, omitted } = await introspection.listProcesses({ containerId: 'c1' })
    expect(omitted).toBe(0)
    expect(processes).toMatchObject([
      { role: 1, execId: '', pid: initPidOf(pod.started, 'c1'), name: 'sh', state: 'S' },
      { role: 2, execId: 'e1', name: 'sleep' },
      { role: 3, execId: '', name: 'sleep', parentPid: initPidOf(pod.started, 'c1') },
    ])
    const [init] = processes
    expect(Math.abs(Number(init?.startedAtMs) - Date.now())).toBeLessThan(60_000)
    expect(init?.residentBytes).toBeGreaterThan(0n)
    expect(JSON.stringify(processes, (_, value) => `${value}`)).not.toContain('hidden')
    const all = await introspection.listProcesses({})
    const own = all.processes.filter(({ role }) => role === 4).map(({ name }) => name)
    expect(own).toEqual(expect.arrayContaining(['vminit', 'kata-agent']))
  })

  it.each([
    ['a pipe', false, /pipe_write$/],
    ['a terminal', true, /./],
  ])('reports for how long the output of a process on %s has been unread', async (_what, terminal, waits) => {
    const execId = `unread-${terminal}`
    const added = await pod.add('c1', execId, ['sh', '-c', 'yes; true'], { terminal })
    for (;;) {
      const { processes } = await introspection.listProcesses({ containerId: 'c1' })
      const writer = processes.find(({ name, waitsIn }) => name === 'yes' && waits.test(waitsIn))
      const shell = processes.find((each) => each.execId === execId)
      if (writer === undefined || shell === undefined || shell.unreadMs === 0n) continue
      expect(writer.unreadMs).toBe(0n)
      break
    }
    await pod.agent.signalProcess({ containerId: 'c1', execId, signal: SIGKILL })
    await pod.agent.closeStdin({ containerId: 'c1', execId })
    await added.wait()
  })

  it('reports the step of a call that hangs, and where the threads are', async () => {
    const waiting = pod.agent.waitProcess({ containerId: 'c1', execId: 'e1' })
    for (;;) {
      const { calls, threads } = await introspection.getStacks({})
      if (calls.every(({ step }) => step !== 'exit e1')) continue
      expect(calls).toMatchObject([{ method: 'grpc.AgentService/WaitProcess', containerId: 'c1' }])
      const main = threads.find(({ pid, threadId }) => pid === pod.started.agentPid() && threadId === pid)
      expect(main).toMatchObject({ name: 'kata-agent', state: 'R' })
      expect(threads.some(({ kernelStack }) => kernelStack.includes('do_syscall_64'))).toBe(true)
      break
    }
    await pod.agent.signalProcess({ containerId: 'c1', execId: 'e1', signal: SIGKILL })
    expect(await waiting).toEqual({ status: 137 })
  })

  it('reports how a process ended, with its resource usage', async () => {
    const before = (await introspection.getEvents({})).lastSequence
    const worker = await pod.add('c1', 'e2', [
      'sh',
      '-c',
      'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3',
    ])
    await worker.wait()
    const events = await eventsAfter(before, ({ processExited }) => processExited?.execId === 'e2')
    expect(events.filter(({ processStarted }) => processStarted?.execId === 'e2')).toHaveLength(1)
    const { exits } = await introspection.listExits({ afterSequence: before, containerId: 'c1' })
    const exit = exits.find(({ execId }) => execId === 'e2')
    expect(exit).toMatchObject({ status: 3, signal: 0, oomKilled: false })
    expect(exit).toEqual(events.at(-1)?.processExited)
    expect(exit?.endedAtMs).toBeGreaterThanOrEqual(exit?.startedAtMs ?? 0n)
    expect(exit?.resources?.userTimeUs).toBeGreaterThan(0n)
  })

  /** The events after a number, up to one that matches: the end of a process may be reported after WaitProcess. */
  async function eventsAfter(sequence: bigint, isLast: (event: Event) => boolean) {
    const found: Event[] = []
    for (let afterSequence = sequence; !found.some(isLast); ) {
      const { events, lastSequence } = await introspection.getEvents({ afterSequence, timeoutMs: 5000 })
      found.push(...events)
      afterSequence = lastSequence
    }
    return found
  }

  it('reads the last output of a process again, from any offset', async () => {
    const worker = await pod.add('c1', 'e3', ['sh', '-c', 'for i in $(seq 1 500); do echo "line $i"; done'])
    const written = await worker.readAll()
    const { data, ...known } = await introspection.readOutput({
      containerId: 'c1',
      execId: 'e3',
      stream: 'stdout',
    })
    const totalBytes = BigInt(written.length)
    expect(known).toEqual({ offset: totalBytes - 1000n, totalBytes, agentRestarts: 0 })
    expect(Buffer.from(data)).toEqual(written.subarray(-1000))
    const from = written.length - 9
    const again = { containerId: 'c1', execId: 'e3', stream: 'stdout', offset: BigInt(from), len: 4 }
    expect(Buffer.from((await introspection.readOutput(again)).data)).toEqual(
      written.subarray(from, from + 4),
    )
    await expect(introspection.readOutput({ ...again, offset: 1_000_000n })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `offset: 1000000, want at most ${written.length}, the end`,
    })
    await expect(introspection.readOutput({ ...again, stream: 'stdin' })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'stream: "stdin", want "stdout" or "stderr"',
    })
    await worker.wait()
  })

  it.each([
    ['a pipe', 'e4', false],
    ['a terminal', 'e5', true],
  ])('reads the last output of %s again that went to a port of the host', async (_, execId, terminal) => {
    const port = await host.listen(2)
    const script = 'for i in $(seq 1 500); do echo "line $i"; done'
    const worker = await pod.add('c1', execId, ['sh', '-c', script], { terminal, ports: { stdoutPort: 2 } })
    const written = await port.all()
    const totalBytes = BigInt(written.length)
    const request = { containerId: 'c1', execId, stream: 'stdout' }
    const { data, ...known } = await introspection.readOutput(request)
    expect(known).toEqual({ offset: totalBytes - 1000n, totalBytes, agentRestarts: 0 })
    expect(Buffer.from(data).toString()).toBe(written.subarray(-1000).toString())
    const part = await introspection.readOutput({ ...request, offset: totalBytes - 9n, len: 4 })
    expect(Buffer.from(part.data).toString()).toBe(written.subarray(-9, -5).toString())
    await worker.wait()
  })

  it('tells a host that saves its machine what runs, and how far the streams are', async () => {
    const port = await host.listen(3)
    const added = ['sh', '-c', 'echo hello; exec sleep 1000']
    await pod.add('c1', 'saved', added, { ports: { stdoutPort: 3 } })
    const socket = await port.connection
    expect(String((await once(socket.resume(), 'data'))[0])).toBe('hello\n')
    const lifecycle = clientFor(LifecycleDefinition, connection)
    const detached = await lifecycle.detach({})
    const guest = await askGuest(connection, detached, neverAborted)
    const again = await host.listen(3)
    await lifecycle.attach({})
    await again.connection
    const restored = restoreInstance(saveInstance({ ...FACTS, guest }), 'state')
    expect(restored.pod).toMatchObject({ stage: PodStage.ACTIVE, id: 'pod', refusedCalls: [] })
    expect(restored.pod.containers).toMatchObject([
      { id: 'c1', stage: ContainerStage.RUNNING, ioRetryMs: 0n, layers: [], vpciDevices: [] },
    ])
    const { '': init, saved } = restored.pod.containers[0]?.processes ?? {}
    const { containers } = await introspection.listContainers({})
    const bundlePath = containers[0]?.bundle
    const running = { stage: ProcessStage.RUNNING, bundlePath, hasTerminal: false, exit: undefined }
    expect(init).toMatchObject({ ...running, pid: initPidOf(pod.started, 'c1'), ports: [] })
    expect(saved).toMatchObject({ ...running, ports: [{ stream: 'stdout', port: 3, total: 6n }] })
    expect(bundlePath).toMatch(/\/c1$/)
    await pod.agent.signalProcess({ containerId: 'c1', execId: 'saved', signal: SIGKILL })
    await pod.agent.waitProcess({ containerId: 'c1', execId: 'saved' })
  })

  it('takes a snapshot of its heap, piece by piece', async () => {
    const first = await introspection.readProfile({ kind: ProfileKind.HEAP })
    const pieces = [first.data]
    for (let offset = first.data.length; BigInt(offset) < first.sizeBytes; ) {
      const { data } = await introspection.readProfile({ id: first.id, offset: BigInt(offset) })
      pieces.push(data)
      offset += data.length
    }
    expect(JSON.parse(Buffer.concat(pieces).toString())).toHaveProperty('snapshot')
    await introspection.readProfile({ id: first.id, discard: true })
    expect((await introspection.getSandbox({})).agentRestarts).toBe(0)
  })

  it('continues its events after its death, and reports the death', async () => {
    const { lastSequence } = await introspection.getEvents({})
    connection.close()
    const { reconnected } = await died()
    introspection = reconnected
    const { events, gap } = await introspection.getEvents({ afterSequence: lastSequence })
    expect(events[0]).toMatchObject({ agentStarted: { restarts: 1 } })
    expect(gap).toMatchObject({ firstSequence: lastSequence + 1n })
    expect(await introspection.getSandbox({})).toMatchObject({ agentRestarts: 1, containers: 1 })
  })

  it('keeps the output on a port anew after its death, and says so', async () => {
    const [input, port] = [await host.listen(1), await host.listen(2)]
    const ports = { stdinPort: 1, stdoutPort: 2 }
    const cat = await pod.add('c1', 'e6', ['cat'], { ports })
    const [typed, shown] = [await input.connection, await port.connection]
    const request = { containerId: 'c1', execId: 'e6', stream: 'stdout' }
    typed.write('before')
    expect(String((await once(shown.resume(), 'data'))[0])).toBe('before')
    const { agentRestarts } = await introspection.getSandbox({})
    expect((await introspection.readOutput(request)).totalBytes).toBe(6n)
    connection.close()
    introspection = (await died()).reconnected
    typed.write('after')
    expect(String((await once(shown, 'data'))[0])).toBe('after')
    const { data, ...known } = await introspection.readOutput(request)
    expect(known).toEqual({ offset: 0n, totalBytes: 5n, agentRestarts: agentRestarts + 1 })
    expect(Buffer.from(data).toString()).toBe('after')
    typed.end()
    expect(await cat.wait()).toBe(0)
  })

  it('reads the last output of a process whose port is not read, also after its death', async () => {
    const port = await host.listen(2)
    const worker = await pod.add('c1', 'e7', ['seq', '1', '100000'], { ports: { stdoutPort: 2 } })
    const request = { containerId: 'c1', execId: 'e7', stream: 'stdout' }
    const written = Buffer.from(Array.from({ length: 100_000 }, (_, index) => `${index + 1}\n`).join(''))
    while ((await introspection.readOutput(request)).totalBytes < BigInt(written.length));
    const before = await introspection.readOutput(request)
    expect(before.totalBytes).toBe(BigInt(written.length))
    expect(Buffer.from(before.data).toString()).toBe(written.subarray(-1000).toString())
    connection.close()
    introspection = (await died()).reconnected
    const after = await introspection.readOutput(request)
    expect(Buffer.from(after.data).toString()).toBe(written.subarray(-1000).toString())
    expect(after.agentRestarts).toBe(before.agentRestarts + 1)
    expect((await port.all()).toString()).toBe(written.toString())
    expect(await worker.wait()).toBe(0)
  })

  /** Kills the agent. The gRPC client reconnects once the next agent serves. */
  async function died() {
    process.kill(pod.started.agentPid(), 'SIGKILL')
    await pod.agent.statsContainer({ containerId: 'c1' })
    connection = grpcConnection(pod.started.path)
    return { reconnected: clientFor(IntrospectionDefinition, connection) }
  }
})
