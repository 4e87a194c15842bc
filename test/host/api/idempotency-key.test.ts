import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { grpcConnection } from '../../../src/client/connection/grpc-connection.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import {
  IntrospectionDefinition,
  ReadProfileRequest_Kind,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { LIMITS } from '../../../src/rpc/limits.ts'
import { type TtrpcClient, ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { createContainerRequest, execProcessRequest } from '../../support/containers/container-requests.ts'
import { type Pod, podOf } from '../../support/containers/pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let started: AgentProcess
let pod: Pod
const root = busyboxRoot(temporaryFolder())
const open: { close(): void }[] = []

beforeAll(async () => {
  started = await startAgent()
  pod = podOf(started.agent, root)
  await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'h' })
  await pod.run('c1', ['sh', '-c', 'mkdir -p /tmp; sleep 1000'])
})
afterAll(async () => {
  for (const one of open) one.close()
  await started?.stop()
})

const FRAMINGS = ['ttrpc', 'grpc'] as const
type Framing = (typeof FRAMINGS)[number]

async function dial(framing: Framing) {
  const socket = connect(started.path)
  await once(socket, 'connect')
  const client: TtrpcClient = framing === 'ttrpc' ? ttrpcClient(socket) : grpcConnection(socket)
  open.push(client)
  const introspection = clientFor(IntrospectionDefinition, client)
  return { agent: clientFor(AgentServiceDefinition, client), introspection, close: () => client.close() }
}

const withKey = (key: string) => ({ metadata: { 'idempotency-key': key } })

/** What a process of the container writes, one line for each time that it ran. */
const file = (name: string) => `${root}/tmp/${name}`
const runsOf = (name: string) => (existsSync(file(name)) ? readFileSync(file(name), 'utf8') : '')
const appending = (execId: string) =>
  execProcessRequest('c1', execId, ['sh', '-c', `echo ran >> /tmp/${execId}; exit 5`])

async function killAgent(): Promise<void> {
  const booted = () => started.log.filter(({ msg }) => msg === 'booted').length
  const before = booted()
  process.kill(started.agentPid(), 'SIGKILL')
  await vi.waitFor(() => expect(booted()).toBeGreaterThan(before), { timeout: 20_000 })
}

describe.each([
  ['ttrpc', 'ttrpc'],
  ['ttrpc', 'grpc'],
  ['grpc', 'ttrpc'],
  ['grpc', 'grpc'],
] as const)('a call with a key by %s, repeated by %s', (first, second) => {
  const name = (what: string) => `${what}-${first}-${second}`

  it('happens once, and answers the same', async () => {
    const id = name('once')
    await (await dial(first)).agent.execProcess(appending(id), withKey(id))
    const other = await dial(second)
    await other.agent.execProcess(appending(id), withKey(id))
    const process = { containerId: 'c1', execId: id }
    expect(await other.agent.waitProcess(process)).toEqual({ status: 5 })
    expect(runsOf(id)).toBe('ran\n')
    await expect(other.agent.execProcess(appending(id))).resolves.toEqual({})
    expect(await other.agent.waitProcess(process)).toEqual({ status: 5 })
  })

  it('goes on when its connection is lost, and is joined', async () => {
    const id = name('joined')
    const lost = await dial(first)
    const write = { containerId: 'c1', execId: `${id}-cat` }
    const waits = `while [ ! -e /tmp/go-${id} ]; do sleep 0.02; done; wc -c`
    await pod.add('c1', write.execId, ['sh', '-c', waits])
    const data = Buffer.alloc(200_000, 'x')
    const writing = lost.agent.writeStdin({ ...write, data }, withKey(id))
    await vi.waitFor(async () => {
      const { calls } = await started.introspection.listCalls({})
      expect(calls.some(({ method }) => method.endsWith('WriteStdin'))).toBe(true)
    })
    lost.close()
    await expect(writing).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    const again = await dial(second)
    const joined = again.agent.writeStdin({ ...write, data }, withKey(id))
    writeFileSync(file(`go-${id}`), '')
    expect(await joined).toEqual({ len: data.length })
    await again.agent.closeStdin(write)
    const { data: counted } = await again.agent.readStdout({ ...write, len: 100 })
    expect(Buffer.from(counted).toString().trim()).toBe(String(data.length))
    expect(await again.agent.waitProcess(write)).toEqual({ status: 0 })
  })

  it('keeps the exit status that WaitProcess has told', async () => {
    const id = name('wait')
    const process = { containerId: 'c1', execId: id }
    await started.agent.execProcess(appending(id))
    const one = await dial(first)
    expect(await one.agent.waitProcess(process, withKey(id))).toEqual({ status: 5 })
    one.close()
    const other = await dial(second)
    await expect(other.agent.waitProcess(process)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(await other.agent.waitProcess(process, withKey(id))).toEqual({ status: 5 })
    await killAgent()
    const later = await dial(second)
    expect(await later.agent.waitProcess(process, withKey(id))).toEqual({ status: 5 })
  })

  it('waits anew for the exit when its connection was lost before', async () => {
    const id = name('waits')
    const process = { containerId: 'c1', execId: id }
    await started.agent.execProcess(execProcessRequest('c1', id, ['sh', '-c', 'read line; exit 7']))
    const one = await dial(first)
    const waiting = one.agent.waitProcess(process, withKey(id))
    await vi.waitFor(async () => {
      const { calls } = await started.introspection.listCalls({})
      expect(calls.some(({ method }) => method.endsWith('WaitProcess'))).toBe(true)
    })
    one.close()
    await expect(waiting).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    const other = await dial(second)
    const again = other.agent.waitProcess(process, withKey(id))
    await other.agent.writeStdin({ ...process, data: Buffer.from('go\n') })
    expect(await again).toEqual({ status: 7 })
  })

  it('gets its failure again', async () => {
    const id = name('failed')
    const request = execProcessRequest('none', id, ['true'])
    const failure = { code: 'INTERNAL', message: 'Invalid container id' }
    await expect((await dial(first)).agent.execProcess(request, withKey(id))).rejects.toMatchObject(failure)
    await pod.run('none', ['sleep', '1000'])
    await expect((await dial(second)).agent.execProcess(request, withKey(id))).rejects.toMatchObject(failure)
    await pod.remove('none')
  })

  it('is known to the next agent', async () => {
    const id = name('agent')
    await (await dial(first)).agent.createContainer(
      createContainerRequest(id, root, ['sleep', '1000']),
      withKey(id),
    )
    await killAgent()
    const other = await dial(second)
    await other.agent.createContainer(createContainerRequest(id, root, ['sleep', '1000']), withKey(id))
    await expect(
      other.agent.createContainer(createContainerRequest(id, root, ['sleep', '1000'])),
    ).rejects.toThrow('already')
    await pod.remove(id)
  })

  it('is carried out once when the agent dies in it', async () => {
    const id = name('dies')
    const one = await dial(first)
    const call = one.agent.execProcess(appending(id), withKey(id)).catch(() => {})
    await vi.waitFor(async () => expect(runsOf(id)).toBe('ran\n'), { interval: 5 })
    one.close()
    await killAgent()
    await call
    const other = await dial(second)
    await other.agent.execProcess(appending(id), withKey(id))
    expect(await other.agent.waitProcess({ containerId: 'c1', execId: id })).toEqual({ status: 5 })
    expect(runsOf(id)).toBe('ran\n')
  })
})

describe.each(FRAMINGS)('a key by %s', (framing) => {
  it('belongs to one call', async () => {
    const { agent } = await dial(framing)
    const options = withKey(`own-${framing}`)
    await agent.ttyWinResize({ containerId: 'c1', execId: 'none' }, options).catch(() => {})
    await expect(agent.ttyWinResize({ containerId: 'c1', execId: 'x' }, options)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `idempotency-key: "own-${framing}" was used with another request, want another key`,
    })
    await expect(agent.closeStdin({ containerId: 'c1', execId: 'none' }, options)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `idempotency-key: "own-${framing}" was used for grpc.AgentService/TtyWinResize, want another key`,
    })
  })

  it.each([0, 129])('is refused with %i bytes', async (bytes) => {
    const { agent } = await dial(framing)
    await expect(agent.closeStdin({ containerId: 'c1' }, withKey('k'.repeat(bytes)))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `idempotency-key: ${bytes} bytes, want 1 to 128`,
    })
  })

  it('is refused by what takes output away, and ignored by what changes nothing', async () => {
    const { agent, introspection } = await dial(framing)
    const refused = { code: 'INVALID_ARGUMENT', message: expect.stringContaining('takes none') }
    const [options, other] = [withKey('r'), { containerId: 'c1', execId: 'c1' }]
    await expect(agent.readStdout({ ...other, len: 1 }, options)).rejects.toMatchObject(refused)
    await expect(agent.getOOMEvent({}, options)).rejects.toMatchObject(refused)
    await expect(introspection.signalOnHangup(other, options)).rejects.toMatchObject(refused)
    await agent.statsContainer({ containerId: 'c1' }, options)
    await introspection.listProcesses({ containerId: 'c1' }, options)
  })

  it('does not keep a long answer, and says so', async () => {
    const { introspection } = await dial(framing)
    const options = withKey(`long-${framing}`)
    const request = { kind: ReadProfileRequest_Kind.HEAP }
    const { id, data } = await introspection.readProfile(request, options)
    expect(data.length).toBeGreaterThan(LIMITS.keyed.outcomeBytes)
    await expect(introspection.readProfile(request, options)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(
        /^idempotency-key: the answer to ".*" of \d+ bytes was not kept, want at most 65536$/,
      ),
    })
    await introspection.readProfile({ id, discard: true })
  })

  it('displaces the oldest outcomes that were delivered', async () => {
    const { agent, introspection } = await dial(framing)
    const key = (count: number) => withKey(`many-${framing}-${count}`)
    const request = { upToSequence: 0n }
    for (let count = 0; count <= LIMITS.keyed.outcomes; count += 64)
      await Promise.all(
        Array.from({ length: 64 }, (_, more) => introspection.acknowledgeExits(request, key(count + more))),
      )
    const other = agent.closeStdin({ containerId: 'c1', execId: 'none' }, key(LIMITS.keyed.outcomes))
    await expect(other).rejects.toThrow('was used for')
    // The first key is free again.
    await expect(agent.closeStdin({ containerId: 'c1', execId: 'none' }, key(0))).rejects.toMatchObject({
      code: 'NOT_FOUND',
    })
  })
})
