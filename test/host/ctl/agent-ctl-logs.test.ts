import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import { cuttingProxy } from '../../support/ctl/cutting-proxy.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'

const KEPT_BYTES = 64

describe('agent-ctl logs', () => {
  let pod: AgentPod
  let address: readonly string[]
  beforeAll(async () => {
    pod = await startPod({ outputReplayBytes: KEPT_BYTES })
    address = ['-a', `unix://${pod.started.path}`]
    await pod.run('web', ['sleep', '1000'])
  })
  afterAll(() => pod.stop())

  it('prints both streams of a process, as often as asked', async () => {
    const job = await pod.add('web', 'job', ['sh', '-c', 'echo out; echo err >&2; sleep 1000'])
    await job.readUntil('out')
    await job.read('stderr')
    for (let round = 0; round < 2; round += 1)
      expect(await ctl([...address, 'logs', 'web', 'job'])).toEqual({
        status: 0,
        stdout: 'out\n',
        stderr: 'err\n',
      })
  })

  it('says how much is no longer kept', async () => {
    const long = await pod.add('web', 'long', [
      'sh',
      '-c',
      'for i in $(seq 100); do echo "line $i"; done; sleep 1000',
    ])
    await long.readUntil('line 100\n')
    const { status, stderr, stdout } = await ctl([...address, 'logs', 'web', 'long'])
    expect([status, stdout.length]).toEqual([0, KEPT_BYTES])
    expect(stdout).toMatch(/line 100\n$/)
    expect(stderr).toMatch(/^agent-ctl: \d+ bytes of stdout are not kept any more\n$/)
  })

  /** Follows `echo one; read line; echo "$line"`, and answers it once its first line is shown. */
  async function followedJob(execId: string, owner: (job: RemoteProcess) => Promise<unknown>) {
    const job = await pod.add('web', execId, ['sh', '-c', 'echo one; read line; echo "$line"'])
    await job.readUntil('one\n')
    let answered: Promise<unknown> | undefined
    const answer = async () => {
      await job.write('two\n')
      await job.readAll()
      await owner(job)
    }
    const onOutput = () => {
      answered ??= answer()
      return answered
    }
    return await ctl([...address, 'logs', '-f', 'web', execId], { onOutput })
  }

  it('follows a process until it ends', async () => {
    const followed = await followedJob('kept', async () => {
      while (!(await ctl([...address, 'exits'])).stdout.includes('web/kept'));
    })
    expect(followed).toEqual({ status: 0, stdout: 'one\ntwo\n', stderr: '' })
  })

  it('says that a process was forgotten before its last output was read', async () => {
    const followed = await followedJob('forgotten', (job) => job.wait())
    expect(followed).toEqual({
      status: 0,
      stdout: 'one\n',
      stderr: 'agent-ctl: the process was forgotten before its last output was read\n',
    })
  })

  it('says that the agent has closed the connection', async () => {
    const job = await pod.add('web', 'lost', ['sh', '-c', 'echo one; echo two >&2; sleep 1000'])
    await job.readUntil('one\n')
    await job.read('stderr')
    const proxy = await cuttingProxy(pod.started.path)
    const onErrors = () => proxy.close()
    const followed = await ctl(['-a', proxy.address, '--reconnect', '0', 'logs', '-f', 'web', 'lost'], {
      onErrors,
    })
    expect(followed).toEqual({
      status: 125,
      stdout: 'one\n',
      stderr:
        'two\nagent-ctl: ListProcesses: the agent closed the connection before its answer; its log tells why\n',
    })
  })

  it('follows a process across a restart of the agent', async () => {
    const job = await pod.add('web', 'lives-on', ['sh', '-c', 'echo before; read line; echo "$line"'])
    await job.readUntil('before\n')
    let isAsked = false
    const restart = async () => {
      process.kill(pod.started.agentPid(), 'SIGKILL')
      await job.write('a longer line after it\n')
      await job.readUntil('after it\n')
    }
    let restarted: Promise<void> | undefined
    const onOutput = () => {
      if (!isAsked) restarted = restart()
      isAsked = true
    }
    const followed = await ctl([...address, 'logs', '-f', 'web', 'lives-on'], { onOutput })
    await restarted
    expect(followed.stdout).toBe('before\na longer line after it\n')
    expect(followed.stderr).toContain(
      'agent-ctl: the agent was started again: some of stdout may be missing, or come again\n',
    )
  })

  it('follows below an agent that has less output than the previous one', async () => {
    const job = await pod.add('web', 'short', ['sh', '-c', 'echo before; read line; echo "$line"'])
    await job.readUntil('before\n')
    let isKilled = false
    const onOutput = () => {
      if (!isKilled) process.kill(pod.started.agentPid(), 'SIGKILL')
      isKilled = true
    }
    let answered: Promise<unknown> | undefined
    const answer = async () => {
      await job.write('then\n')
      await job.readAll()
    }
    const onErrors = () => {
      answered ??= answer()
    }
    const followed = await ctl([...address, 'logs', '-f', 'web', 'short'], { onOutput, onErrors })
    await answered
    expect(followed).toMatchObject({ status: 0, stdout: 'before\nthen\n' })
  })

  it('ends at a signal', async () => {
    const interruptions = new Interruptions()
    const onOutput = () => interruptions.receive('SIGINT')
    const job = await pod.add('web', 'ends', ['sh', '-c', 'echo on; sleep 1000'])
    await job.readUntil('on')
    const { status } = await ctl([...address, 'logs', '-f', 'web', 'ends'], { interruptions, onOutput })
    expect(status).toBe(130)
  })

  it('says which setting is missing', async () => {
    const other = await startPod()
    const failed = await ctl(['-a', `unix://${other.started.path}`, 'logs', 'nope'])
    await other.run('other', ['sleep', '1000'])
    const off = await ctl(['-a', `unix://${other.started.path}`, 'logs', 'other'])
    await other.stop()
    expect(failed).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^agent-ctl: ReadOutput: .*"nope", there is none\n$/),
    })
    expect(off.stderr).toBe(
      'agent-ctl: ReadOutput: FAILED_PRECONDITION: agent.output_replay_bytes is not set, want ./microvm run --append "agent.output_replay_bytes=65536"\n',
    )
  })
})
