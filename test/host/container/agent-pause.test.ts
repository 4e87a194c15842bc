import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL, SIGTERM } from '../../../src/base/signals.ts'
import {
  type AgentPod,
  cgroupFile,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'

let pod: AgentPod

const freezerOf = (id: string) => cgroupFile(pod.started, 'freezer', id, 'state').trim()

describe('a paused container', () => {
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  it('does nothing until it is resumed', async () => {
    const init = await pod.run('paused', ['sh', '-c', 'read line; echo "got $line"; read line; exit 3'])
    const added = await pod.add('paused', 'e', ['sh', '-c', 'read line; echo "too $line"'])
    await pod.agent.pauseContainer({ containerId: 'paused' })
    expect(freezerOf('paused')).toBe('FROZEN')
    await Promise.all([init.write('one\n'), added.write('two\n')])
    const silence = init.read()
    await expect(pod.agent.pauseContainer({ containerId: 'paused' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container paused is paused, not created or running',
    })
    await expect(pod.add('paused', 'late', ['true'])).rejects.toMatchObject({
      message: 'container paused is paused',
    })
    expect(freezerOf('paused')).toBe('FROZEN')
    await pod.agent.resumeContainer({ containerId: 'paused' })
    expect(freezerOf('paused')).toBe('THAWED')
    expect((await silence).toString()).toBe('got one\n')
    expect((await added.readAll()).toString()).toBe('too two\n')
    await init.write('end\n')
    expect(await init.wait()).toBe(3)
    await expect(pod.agent.resumeContainer({ containerId: 'paused' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container paused is stopped, not paused',
    })
    await pod.remove('paused')
  })

  it('may be one that was not started', async () => {
    const init = await pod.create('early', ['sh', '-c', 'exit 4'])
    await pod.agent.pauseContainer({ containerId: 'early' })
    await expect(pod.agent.startContainer({ containerId: 'early' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container early is paused, not created',
    })
    await pod.agent.resumeContainer({ containerId: 'early' })
    await pod.agent.startContainer({ containerId: 'early' })
    expect(await init.wait()).toBe(4)
    await pod.remove('early')
  })

  it('can be killed', async () => {
    const init = await pod.run('killed', ['sleep', '1000'])
    await pod.agent.pauseContainer({ containerId: 'killed' })
    await pod.agent.signalProcess({ containerId: 'killed', signal: SIGKILL })
    expect(await init.wait()).toBe(128 + SIGKILL)
    await pod.remove('killed')
  })

  it('gets its signals when it is resumed', async () => {
    const init = await pod.run('late', [
      'sh',
      '-c',
      'trap "exit 5" TERM; echo ready; while :; do sleep 0.1; done',
    ])
    await init.readUntil('ready')
    await pod.agent.pauseContainer({ containerId: 'late' })
    await init.signal(SIGTERM)
    await pod.agent.resumeContainer({ containerId: 'late' })
    expect(await init.wait()).toBe(5)
    await pod.remove('late')
  })

  it('can be removed', async () => {
    await pod.run('removed', ['sleep', '1000'])
    await pod.agent.pauseContainer({ containerId: 'removed' })
    await pod.remove('removed')
    expect(leftoversOf(pod.started, 'removed')).toEqual(NOTHING_LEFT)
  })

  it.each(['pauseContainer', 'resumeContainer'] as const)('that does not exist: %s', async (call) => {
    await expect(pod.agent[call]({ containerId: 'nobody' })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'invalid container id',
    })
  })
})
