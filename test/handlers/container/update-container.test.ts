import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { UpdateContainerRequest } from '../../../src/gen/agent.ts'
import { containerRequest, type Machine, machineWithSandbox } from '../../support/handlers/machine.ts'

const CONFIG = '/run/kata-containers/c1/config.json'

/** A machine with container `c1`, which has limits; `inputs` are the arguments of `update`. */
async function machineWithLimits(): Promise<Machine & { readonly inputs: unknown[] }> {
  const made = await machineWithSandbox()
  const Resources = { Memory: { Limit: 1000n }, Pids: { Limit: 10n } }
  const { OCI, ...request } = containerRequest('c1')
  const linux = { ...OCI?.Linux, Resources }
  await made.handlers.createContainer(
    containerRequest('c1', {}, { ...request, OCI: { ...OCI, Linux: linux } }),
    neverAborted,
  )
  const inputs: unknown[] = []
  made.runtime.refuse = async (verb) => {
    const argv = made.os.tools.calls.at(-1)?.argv ?? []
    const file = argv[argv.indexOf('--resources') + 1] ?? ''
    if (verb === 'update') inputs.push(JSON.parse(await made.os.files.readText(file)))
    return {}
  }
  return { ...made, inputs }
}

function update(resources: Parameters<typeof UpdateContainerRequest.fromPartial>[0]['resources']) {
  return UpdateContainerRequest.fromPartial({ containerId: 'c1', ...(resources ? { resources } : {}) })
}

describe('UpdateContainer', () => {
  it('passes the named limits to the runtime, and merges them into the stored spec', async () => {
    const { handlers, os, inputs } = await machineWithLimits()
    await handlers.updateContainer(update({ Memory: { Limit: 2000n }, CPU: { Quota: -1n } }), neverAborted)
    expect(inputs).toEqual([{ memory: { limit: 2000 }, cpu: { quota: -1 } }])
    const stored = JSON.parse(await os.files.readText(CONFIG))
    expect(stored.linux.resources).toEqual({
      memory: { limit: 2000 },
      cpu: { quota: -1 },
      pids: { limit: 10 },
    })
  })

  it('treats the number 0 of a device rule as any', async () => {
    const { handlers, inputs } = await machineWithLimits()
    const rule = { Allow: true, Type: 'c', Major: 136n, Minor: 0n, Access: 'rw' }
    await handlers.updateContainer(update({ Devices: [rule] }), neverAborted)
    expect(inputs).toEqual([{ devices: [{ allow: true, type: 'c', major: 136, access: 'rw' }] }])
  })

  it('leaves out limits of huge pages that the guest does not have', async () => {
    const { handlers, os, inputs } = await machineWithLimits()
    await os.files.put('/sys/fs/cgroup/cgroup.controllers', 'hugetlb pids\n')
    await os.files.makeDirectories('/sys/kernel/mm/hugepages/hugepages-2048kB')
    const HugepageLimits = ['1GB', '2MB'].map((Pagesize) => ({ Pagesize, Limit: 0n }))
    await handlers.updateContainer(update({ HugepageLimits }), neverAborted)
    expect(inputs).toEqual([{ hugepageLimits: [{ pageSize: '2MB', limit: 0 }] }])
  })

  it('does nothing without resources', async () => {
    const { handlers, inputs } = await machineWithLimits()
    await handlers.updateContainer(update(undefined), neverAborted)
    expect(inputs).toEqual([])
  })

  it('keeps the stored spec when the runtime fails, and can be repeated', async () => {
    const { handlers, os, runtime } = await machineWithLimits()
    const before = await os.files.readText(CONFIG)
    runtime.refuse = () => ({ exitCode: 1, stderr: 'too little' })
    const updating = handlers.updateContainer(update({ Memory: { Limit: 1n } }), neverAborted)
    await expect(updating).rejects.toMatchObject({ code: 'INTERNAL', message: 'runc update: too little' })
    expect(await os.files.readText(CONFIG)).toBe(before)
    runtime.refuse = () => undefined
    await handlers.updateContainer(update({ Memory: { Limit: 2n } }), neverAborted)
  })

  it('runs one update after the other', async () => {
    const { handlers, inputs } = await machineWithLimits()
    await Promise.all(
      [1n, 2n, 3n].map((Limit) => handlers.updateContainer(update({ Pids: { Limit } }), neverAborted)),
    )
    expect(inputs).toEqual([1, 2, 3].map((limit) => ({ pids: { limit } })))
  })

  it('leaves a paused container paused', async () => {
    const { handlers, context } = await machineWithLimits()
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.pauseContainer({ containerId: 'c1' }, neverAborted)
    await handlers.updateContainer(update({ Pids: { Limit: 1n } }), neverAborted)
    expect(context.containers.tryGet('c1')?.state.name).toBe('paused')
  })

  it('refuses a stopped container and an unknown one', async () => {
    const { handlers, runtime } = await machineWithLimits()
    runtime.end(runtime.last().pid, { code: 0 })
    await new Promise(setImmediate)
    await expect(handlers.updateContainer(update({}), neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container c1 is stopped, not created or running or paused',
    })
    const other = UpdateContainerRequest.fromPartial({ containerId: 'c9' })
    await expect(handlers.updateContainer(other, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'invalid container id',
    })
  })
})
