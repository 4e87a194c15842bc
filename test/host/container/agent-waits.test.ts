import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL, SIGTERM } from '../../../src/base/signals.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, initPidOf, startPod } from '../../support/host/agent-pod.ts'

const SIGUSR1 = 10

describe('the exit of a process', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  it('is returned to a caller that waited before the start', async () => {
    const init = await pod.create('early', ['sh', '-c', 'exit 3'])
    const status = init.wait()
    await pod.agent.startContainer({ containerId: 'early' })
    expect(await status).toBe(3)
    await pod.remove('early')
  })

  it('is returned to all callers that wait, on any connection', async () => {
    const init = await pod.run('popular', ['sh', '-c', 'read line; exit 4'])
    const other = await pod.started.connect()
    const elsewhere = new RemoteProcess(other.agent, 'popular')
    const waits = Array.from({ length: 60 }, (_, number) => (number % 2 === 0 ? init : elsewhere).wait())
    // The calls of one connection begin in order: this answer shows that all earlier waits are waiting.
    await Promise.all([pod.started.health.check({}), other.health.check({})])
    await init.write('end\n')
    expect(new Set(await Promise.all(waits))).toEqual(new Set([4]))
    other.close()
    await pod.remove('popular')
  })

  it('is kept when its waiter hung up before the answer, and returned to the next one', async () => {
    for (let round = 0; round < 5; round++) {
      const init = await pod.run('kept', ['sleep', '1000'])
      const pid = initPidOf(pod.started, 'kept')
      const other = await pod.started.connect()
      const lost = new RemoteProcess(other.agent, 'kept').wait().catch((error: unknown) => error)
      await other.health.check({})
      // While the agent is stopped, the exit and the hang-up both become pending, so it sees them at once.
      const agentPid = pod.started.agentPid()
      process.kill(agentPid, 'SIGSTOP')
      try {
        process.kill(pid, 'SIGKILL')
        other.close()
      } finally {
        process.kill(agentPid, 'SIGCONT')
      }
      expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
      expect(await init.wait()).toBe(128 + SIGKILL)
      await expect(init.wait()).rejects.toMatchObject({ code: 'NOT_FOUND' })
      await pod.remove('kept')
    }
  })

  it('is kept when the deadline of its waiter passes', async () => {
    const init = await pod.run('patient', ['sh', '-c', 'read line; exit 6'])
    const short = pod.agent.waitProcess({ containerId: 'patient' }, { timeoutMs: 50 })
    await expect(short).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    // The client's own clock ended the call. Until its deadline, the agent would still answer that call.
    await pod.started.logged({ rpc: 'grpc.AgentService/WaitProcess', code: 'DEADLINE_EXCEEDED' })
    await init.write('end\n')
    expect(await init.wait()).toBe(6)
    await pod.remove('patient')
  })

  it('leaves its output readable until it is collected', async () => {
    const init = await pod.run('words', ['echo', 'last words'])
    // The output of an ended process stays readable until WaitProcess is answered.
    expect((await init.readUntil('last words')).trim()).toBe('last words')
    const added = await pod.run('kin', ['sh', '-c', 'echo unread; exit 2'])
    expect(await added.wait()).toBe(2)
    await expect(added.read()).rejects.toMatchObject({ code: 'NOT_FOUND' })
    for (const id of ['words', 'kin']) await pod.remove(id)
  })
})

describe('a signal', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
    await pod.run('owner', ['sleep', '1000'], { sandboxPidns: true })
  })
  afterAll(() => pod.stop())

  it('9 without exec id kills all processes of a container, orphans too', async () => {
    // The reader sees the end of the pipe when the forked process, which writes to it, is dead.
    const watcher = await pod.add('owner', 'watch', [
      'sh',
      '-c',
      'mkfifo /tmp/held; cat /tmp/held; echo dead',
    ])
    const script = '(until [ -p /tmp/held ]; do sleep 0.01; done; sleep 1000 >/tmp/held &); sleep 1000'
    const init = await pod.run('all', ['sh', '-c', script], { sandboxPidns: true })
    const added = await pod.add('all', 'e', ['sleep', '1000'])
    await pod.agent.signalProcess({ containerId: 'all', execId: '', signal: SIGKILL })
    expect(await Promise.all([init.wait(), added.wait()])).toEqual([128 + SIGKILL, 128 + SIGKILL])
    expect((await watcher.readAll()).toString()).toBe('dead\n')
    expect(await watcher.wait()).toBe(0)
    await pod.remove('all')
  })

  it('9 with the container’s id kills its first process only', async () => {
    const init = await pod.run('first', ['sleep', '1000'], { sandboxPidns: true })
    const added = await pod.add('first', 'e', ['sh', '-c', 'read line; echo "$line"'])
    await pod.agent.signalProcess({ containerId: 'first', execId: 'first', signal: SIGKILL })
    expect(await init.wait()).toBe(128 + SIGKILL)
    await added.write('still here\n')
    expect((await added.readAll()).toString()).toBe('still here\n')
    await pod.remove('first')
  })

  it('other than 9 reaches the first process only', async () => {
    const script = 'trap "echo got it; exit 5" USR1; echo ready; while :; do sleep 0.1; done'
    const init = await pod.run('other', ['sh', '-c', script])
    const added = await pod.add('other', 'e', ['sh', '-c', script])
    await Promise.all([init.readUntil('ready'), added.readUntil('ready')])
    await added.signal(0)
    await init.signal(SIGUSR1)
    expect(await init.readUntil('got it')).toContain('got it')
    expect(await init.wait()).toBe(5)
    // The added process died with its pid namespace, not by the signal, which only the first process received.
    expect(await added.wait()).toBe(128 + SIGKILL)
    expect((await added.readAll().catch(() => Buffer.alloc(0))).toString()).not.toContain('got it')
    await pod.remove('other')
  })

  it('to an added process ends it as that signal does', async () => {
    const added = await pod.add('owner', 'mortal', ['sleep', '1000'])
    await added.signal(SIGTERM)
    expect(await added.wait()).toBe(128 + SIGTERM)
  })

  it('to a process that has ended succeeds until its status is collected', async () => {
    const added = await pod.add('owner', 'over', ['true'])
    await added.readAll()
    await added.signal(SIGTERM)
    await added.signal(SIGKILL)
    expect(await added.wait()).toBe(0)
    await expect(added.signal(SIGKILL)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('9 to all ends a container that was not started', async () => {
    const init = await pod.create('unstarted', ['true'])
    await pod.agent.signalProcess({ containerId: 'unstarted', execId: '', signal: SIGKILL })
    expect(await init.wait()).toBe(128 + SIGKILL)
    await pod.remove('unstarted')
  })
})
