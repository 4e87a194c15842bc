import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { ttrpcClient } from '../../src/rpc/ttrpc/client.ts'
import { leftoversOf, mountPointsOf, NOTHING_LEFT, type Pod, startPod } from './agent-pod.ts'
import type { AgentProcess } from './agent-process.ts'
import { container, exec } from './container-requests.ts'

type Agent = AgentProcess['agent']
type Call = readonly [name: string, call: (agent: Agent) => Promise<unknown>]

const SIGKILL = 9
const SIGTERM = 15

/** The calls about one process, by the name under which a test reports them. */
function processCalls(containerId: string, execId: string): readonly Call[] {
  const key = { containerId, execId }
  return [
    ['SignalProcess', (agent) => agent.signalProcess({ ...key, signal: SIGTERM })],
    ['WaitProcess', (agent) => agent.waitProcess(key)],
    ['ReadStdout', (agent) => agent.readStdout({ ...key, len: 1 })],
    ['ReadStderr', (agent) => agent.readStderr({ ...key, len: 1 })],
    ['CloseStdin', (agent) => agent.closeStdin(key)],
    ['TtyWinResize', (agent) => agent.ttyWinResize({ ...key, row: 1, column: 1 })],
  ]
}

describe('what a call answers that cannot be done', () => {
  let pod: Pod
  let agent: Agent
  beforeAll(async () => {
    pod = await startPod()
    agent = pod.agent
    await pod.run('living', ['sleep', '1000'])
  })
  afterAll(() => pod.stop())

  describe('for a container that does not exist', () => {
    const internal: readonly Call[] = [
      ['StartContainer', (to) => to.startContainer({ containerId: 'nobody' })],
      ['RemoveContainer', (to) => to.removeContainer({ containerId: 'nobody' })],
      ['ExecProcess', (to) => to.execProcess(exec('nobody', 'e', ['true']))],
      ['SignalProcess to all', (to) => to.signalProcess({ containerId: 'nobody', signal: SIGKILL })],
      ['WriteStdin', (to) => to.writeStdin({ containerId: 'nobody', data: Buffer.from('x') })],
    ]
    it.each(internal)('%s: INTERNAL', async (_name, call) => {
      await expect(call(agent)).rejects.toMatchObject({ code: 'INTERNAL', message: 'Invalid container id' })
    })
    it.each(processCalls('nobody', ''))('%s: INVALID_ARGUMENT', async (_name, call) => {
      const answer = { code: 'INVALID_ARGUMENT', message: 'Invalid container id' }
      await expect(call(agent)).rejects.toMatchObject(answer)
    })
  })

  describe('for a process that does not exist', () => {
    it.each(processCalls('living', 'nobody'))('%s: NOT_FOUND', async (_name, call) => {
      const answer = { code: 'NOT_FOUND', message: 'Process not found: invalid exec id' }
      await expect(call(agent)).rejects.toMatchObject(answer)
    })
    it('WriteStdin: INTERNAL, as for every failure', async () => {
      const writing = agent.writeStdin({ containerId: 'living', execId: 'nobody', data: Buffer.from('x') })
      const answer = { code: 'INTERNAL', message: 'Process not found: invalid exec id' }
      await expect(writing).rejects.toMatchObject(answer)
    })
  })

  describe('for a first process whose status was collected', () => {
    beforeAll(async () => {
      const init = await pod.run('collected', ['true'])
      await init.wait()
    })
    afterAll(() => pod.remove('collected'))

    const added: Call = ['ExecProcess', (to) => to.execProcess(exec('collected', 'e', ['true']))]
    const calls = [...processCalls('collected', ''), ...processCalls('collected', 'collected'), added]
    it.each(calls)('%s: NOT_FOUND', async (_name, call) => {
      const answer = { code: 'NOT_FOUND', message: 'Process not found: init process missing' }
      await expect(call(agent)).rejects.toMatchObject(answer)
    })
    it('StartContainer: INTERNAL', async () => {
      await expect(agent.startContainer({ containerId: 'collected' })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: 'container collected is stopped, not created',
      })
    })
  })

  it.each([
    ['one character', 'x'],
    ['a dash first', '-x'],
    ['a slash', 'a/b'],
    ['dots', '..'],
    ['a space', 'a b'],
    ['nothing', ''],
  ])('CreateContainer refuses the id of %s, naming it', async (_what, id) => {
    await expect(agent.createContainer(container(id, pod.root, ['true']))).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining(`'${id}'`),
    })
  })

  it.each([
    ['no OCI spec', { OCI: undefined }, 'EINVAL'],
    ['no process', { Process: undefined }, 'EINVAL'],
    ['no root', { Root: undefined }, 'EINVAL'],
    ['no linux part', { Linux: undefined }, 'Spec does not contain linux field'],
  ])('CreateContainer refuses a request with %s and keeps nothing', async (_what, change, text) => {
    const { OCI, ...request } = container('partial', pod.root, ['true'])
    const spec = 'OCI' in change ? undefined : { ...OCI, ...change }
    await expect(agent.createContainer({ ...request, OCI: spec })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining(text),
    })
    expect(leftoversOf(pod.started, 'partial')).toMatchObject({
      ...NOTHING_LEFT,
      processes: [expect.anything()],
    })
  })

  it('CreateContainer refuses an id in use and does not touch its owner', async () => {
    const before = mountPointsOf(pod.started)
    await expect(pod.create('living', ['true'])).rejects.toMatchObject({
      code: 'INTERNAL',
      message: "container id 'living' is in use by a container that is running",
    })
    expect(mountPointsOf(pod.started)).toEqual(before)
    const added = await pod.add('living', 'after-duplicate', ['echo', 'lives'])
    expect((await added.readAll()).toString()).toBe('lives\n')
    await added.wait()
  })

  it('CreateSandbox refuses a second sandbox and touches nothing', async () => {
    const before = mountPointsOf(pod.started)
    await expect(agent.createSandbox({ sandboxId: 'second', hostname: 'other' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: "a sandbox 'pod' already exists (active)",
    })
    expect(mountPointsOf(pod.started)).toEqual(before)
    const added = await pod.add('living', 'after-second', ['hostname'])
    expect((await added.readAll()).toString()).toBe('podname\n')
    await added.wait()
  })

  it('StartContainer refuses a second start', async () => {
    await expect(agent.startContainer({ containerId: 'living' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container living is running, not created',
    })
  })

  it('ExecProcess refuses a missing process, and an exec id in use', async () => {
    await expect(agent.execProcess({ containerId: 'living', execId: 'e' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Unable to parse process from ExecProcessRequest',
    })
    const added = await pod.add('living', 'taken', ['sleep', '1000'])
    for (const execId of ['taken', 'living', '']) {
      await expect(pod.add('living', execId, ['true'])).rejects.toMatchObject({
        code: 'INTERNAL',
        message: `exec_id '${execId}' already exists`,
      })
    }
    await added.signal(SIGKILL)
    expect(await added.wait()).toBe(128 + SIGKILL)
    await expect(added.wait()).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('WriteStdin refuses to write after the end, and to a process that reads no more', async () => {
    const ended = await pod.add('living', 'ended', ['sleep', '1000'])
    await ended.closeStdin()
    await ended.closeStdin()
    await expect(ended.write('x')).rejects.toMatchObject({ code: 'INTERNAL', message: 'Cannot get writer' })
    await ended.signal(SIGKILL)
    await ended.wait()
    const deaf = await pod.add('living', 'deaf', ['sh', '-c', 'exec <&-; echo closed; sleep 1000'])
    await deaf.readUntil('closed')
    await expect(deaf.write('x')).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('EPIPE'),
    })
    await deaf.signal(SIGKILL)
    await deaf.wait()
  })

  it('TtyWinResize refuses a process without a terminal: UNAVAILABLE', async () => {
    const resizing = agent.ttyWinResize({ containerId: 'living', row: 24, column: 80 })
    await expect(resizing).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'no tty' })
  })

  it('says UNIMPLEMENTED for each RPC that it does not serve yet', async () => {
    const served = [
      ...['CreateSandbox', 'DestroySandbox', 'CreateContainer', 'StartContainer', 'RemoveContainer'],
      ...['ExecProcess', 'SignalProcess', 'WaitProcess', 'WriteStdin', 'ReadStdout', 'ReadStderr'],
      ...['CloseStdin', 'TtyWinResize', 'PauseContainer', 'ResumeContainer', 'UpdateContainer'],
      ...['StatsContainer', 'GetOOMEvent', 'GetDiagnosticData', 'GetGuestDetails'],
      ...['UpdateEphemeralMounts', 'RemoveStaleVirtiofsShareMounts'],
      ...['GetMetrics', 'ReseedRandomDev', 'SetGuestDateTime'],
      ...['OnlineCPUMem', 'MemHotplugByProbe', 'AddSwap', 'AddSwapPath', 'GetVolumeStats', 'ResizeVolume'],
    ]
    const names = Object.values(AgentServiceDefinition.methods).map(({ name }) => name)
    const client = ttrpcClient(connect(pod.started.path))
    for (const name of names.filter((method) => !served.includes(method))) {
      await expect(client.call('grpc.AgentService', name, new Uint8Array()), name).rejects.toMatchObject({
        code: 'UNIMPLEMENTED',
        message: expect.stringContaining(name),
      })
    }
    client.close()
  })
})
