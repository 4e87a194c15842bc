import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { containerRequest, machineWithContainer, machineWithSandbox } from '../../support/handlers/machine.ts'

const c1 = { containerId: 'c1' }

describe('StatsContainer', () => {
  it('reads the container’s own cgroup', async () => {
    const { handlers, os } = await machineWithContainer()
    await os.files.put('/sys/fs/cgroup/pids/containers/c1/pids.current', '4\n')
    const { cgroupStats, networkStats } = await handlers.statsContainer(c1, neverAborted)
    expect(cgroupStats?.pidsStats?.current).toBe(4n)
    expect(networkStats).toEqual([])
  })

  it('returns statistics of a stopped container', async () => {
    const { handlers, runtime } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 0 })
    expect((await handlers.statsContainer(c1, neverAborted)).cgroupStats?.pidsStats?.current).toBe(0n)
  })

  it('does not wait for a transition of the container', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const ended = Promise.withResolvers<object>()
    runtime.refuse = () => ended.promise
    const starting = handlers.startContainer(c1, neverAborted)
    expect(await handlers.statsContainer(c1, neverAborted)).toBeDefined()
    ended.resolve({})
    await starting
  })

  it('refuses an unknown container', async () => {
    const { handlers } = await machineWithSandbox()
    await expect(handlers.statsContainer(c1, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'invalid container id',
    })
  })
})
