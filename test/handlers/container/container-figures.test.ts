import { describe, expect, it } from 'vitest'
import { containerFigures } from '../../../src/handlers/container/container-figures.ts'
import { ContainerRegistry } from '../../../src/handlers/container/registry.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { recordsIn } from '../../support/handlers/successor.ts'

const ROOT = '/sys/fs/cgroup'

describe('the figures of containers', () => {
  it('come from three files of each cgroup v2', async () => {
    const { os, containers } = guest()
    await os.files.put(`${ROOT}/cgroup.controllers`, 'cpu memory pids')
    await os.files.put(`${ROOT}/pod/c7/cpu.stat`, 'usage_usec 1500000\nuser_usec 1\n')
    await os.files.put(`${ROOT}/pod/c7/memory.current`, '4096\n')
    await os.files.put(`${ROOT}/pod/c7/pids.current`, '3\n')
    const figures = await containerFigures(os, containers.list())
    expect(figures).toHaveLength(70)
    expect(figures[7]).toEqual({ id: 'c7', cpuSeconds: 1.5, memoryBytes: 4096n, pids: 3n, oomKills: 0n })
    const none = { cpuSeconds: undefined, memoryBytes: undefined, pids: undefined }
    expect(figures[69]).toEqual({ id: 'c69', ...none, oomKills: 0n })
  })

  it('come from three hierarchies of cgroup v1', async () => {
    const { os, containers } = guest()
    await os.files.put(`${ROOT}/cpuacct/pod/c40/cpuacct.usage`, '2500000000\n')
    await os.files.put(`${ROOT}/memory/pod/c40/memory.usage_in_bytes`, '8192\n')
    await os.files.put(`${ROOT}/pids/pod/c40/pids.current`, '1\n')
    const figures = await containerFigures(os, containers.list())
    expect(figures[40]).toEqual({ id: 'c40', cpuSeconds: 2.5, memoryBytes: 8192n, pids: 1n, oomKills: 0n })
  })
})

function guest() {
  const containers = new ContainerRegistry(recordsIn(new MemoryStateFiles()))
  for (let number = 0; number < 70; number++) containers.add(`c${number}`, `/pod/c${number}`)
  return { os: new FakeOs(), containers }
}
