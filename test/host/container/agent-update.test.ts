import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentPod, cgroupFile, startPod } from '../../support/host/agent-pod.ts'

const MIB = 1n << 20n

let pod: AgentPod

const setting = (controller: string, id: string, name: string) =>
  cgroupFile(pod.started, controller, id, name).trim()

describe('UpdateContainer', () => {
  beforeAll(async () => {
    pod = await startPod()
    await pod.run('c1', ['sleep', '1000'])
  })
  afterAll(() => pod.stop())

  const update = (
    resources: Parameters<AgentPod['agent']['updateContainer']>[0]['resources'],
    containerId = 'c1',
  ) => pod.agent.updateContainer({ containerId, ...(resources ? { resources } : {}) })

  it('sets limits, and leaves those that it does not name', async () => {
    await update({
      Memory: { Limit: 64n * MIB, Swap: 128n * MIB },
      CPU: { Quota: 50_000n, Period: 100_000n, Shares: 512n },
      Pids: { Limit: 33n },
    })
    await update({ Memory: { Limit: 48n * MIB } })
    await update({ CPU: { Quota: -1n } })
    expect(setting('memory', 'c1', 'limit_in_bytes')).toBe(String(48n * MIB))
    expect(setting('memory', 'c1', 'memsw.limit_in_bytes')).toBe(String(128n * MIB))
    expect(setting('cpu', 'c1', 'cfs_quota_us')).toBe('-1')
    expect(setting('cpu', 'c1', 'cfs_period_us')).toBe('100000')
    expect(setting('cpu', 'c1', 'shares')).toBe('512')
    expect(setting('pids', 'c1', 'max')).toBe('33')
    const config = JSON.parse(readFileSync(pod.started.inside('/run/kata-containers/c1/config.json'), 'utf8'))
    expect(config.linux.resources).toMatchObject({
      memory: { limit: Number(48n * MIB), swap: Number(128n * MIB) },
      cpu: { quota: -1, period: 100_000, shares: 512 },
      pids: { limit: 33 },
    })
  })

  it('changes nothing without resources', async () => {
    await update(undefined)
    expect(setting('memory', 'c1', 'limit_in_bytes')).toBe(String(48n * MIB))
  })

  it('leaves a paused container frozen', async () => {
    await pod.agent.pauseContainer({ containerId: 'c1' })
    await update({ Pids: { Limit: 44n } })
    expect(setting('pids', 'c1', 'max')).toBe('44')
    expect(cgroupFile(pod.started, 'freezer', 'c1', 'state')).toBe('FROZEN\n')
    await pod.agent.resumeContainer({ containerId: 'c1' })
  })

  it('answers INTERNAL with the runtime’s error for impossible limits', async () => {
    await expect(update({ CPU: { Cpus: '4096' } })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/^runc update: .*cpuset/),
    })
  })

  it('answers INVALID_ARGUMENT for a container that does not exist', async () => {
    await expect(update({}, 'nobody')).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'invalid container id',
    })
  })
})
