import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { OnlineCPUMemRequest } from '../../../src/gen/agent.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { FakeSysfs } from '../../support/handlers/guest/fake-sysfs.ts'
import { containerRequest, type Machine, machineWithSandbox } from '../../support/handlers/machine.ts'

const cpusetOf = (id: string) => `/sys/fs/cgroup/cpuset/containers/pod/${id}/cpuset.cpus`

describe('OnlineCPUMem', () => {
  let made: Machine
  let sysfs: FakeSysfs

  beforeEach(async () => {
    const os = new FakeOs()
    sysfs = await FakeSysfs.of(os, 4)
    made = await machineWithSandbox({ os })
    await create('free', undefined)
    await create('bound', '0')
    await sysfs.plugCpu(1)
    await sysfs.plugMemory(32)
  })

  it('brings CPUs and memory online, and adds the CPUs to the containers’ cpusets', async () => {
    await onlineCpuMem({ nbCpus: 2 })
    expect(await made.os.files.readText(cpusetOf('free'))).toBe('0,1')
    expect(await made.os.files.readText(cpusetOf('bound'))).toBe('0')
    expect(await sysfs.memoryOnline(32)).toBe('1')
  })

  it('skips memory with cpu_only, and CPUs with nb_cpus 0', async () => {
    await onlineCpuMem({ nbCpus: 0, cpuOnly: true })
    expect(sysfs.written).toEqual([])
    await onlineCpuMem({ nbCpus: 2, cpuOnly: true })
    expect(await sysfs.memoryOnline(32)).toBe('0')
    sysfs.written.length = 0
    await onlineCpuMem({ nbCpus: 0 })
    expect(sysfs.written).toEqual(['/sys/devices/system/memory/memory32/online'])
  })

  it('updates every other container when one cpuset cannot be written', async () => {
    sysfs.refusals.set(cpusetOf('free'), 'EACCES')
    await made.os.files.write(cpusetOf('bound'), '')
    await expect(onlineCpuMem({ nbCpus: 2 })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: `CPUs not given to containers: write ${cpusetOf('free')}: EACCES`,
    })
    expect(await made.os.files.readText(cpusetOf('bound'))).toBe('0')
  })

  async function create(id: string, cpus: string | undefined): Promise<void> {
    const { OCI, ...request } = containerRequest(id)
    const limits = cpus === undefined ? {} : { Resources: { CPU: { Cpus: cpus } } }
    const Linux = { ...OCI?.Linux, CgroupsPath: `/pod/${id}`, ...limits }
    await made.handlers.createContainer(
      containerRequest(id, {}, { ...request, OCI: { ...OCI, Linux } }),
      neverAborted,
    )
    await made.os.files.put(cpusetOf(id), '0')
  }

  function onlineCpuMem(request: Parameters<typeof OnlineCPUMemRequest.fromPartial>[0]): Promise<void> {
    return made.handlers.onlineCpuMem(OnlineCPUMemRequest.fromPartial(request), neverAborted)
  }
})
