import { beforeEach, describe, expect, it } from 'vitest'
import { refreshCpuset } from '../../src/os/cgroup/cpuset.ts'
import { kernelError } from '../../src/os/errors.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'

const V1 = '/sys/fs/cgroup/cpuset'
const V2 = '/sys/fs/cgroup'

let os: FakeOs
let written: [string, string][]

beforeEach(() => {
  os = new FakeOs()
  written = []
})

describe('refreshCpuset on v1', () => {
  beforeEach(() => furnish(V1, { '/kata': '0', '/kata/pod': '0', '/kata/pod/c1': '0' }))

  it('widens the parents from the top down, then sets the container’s own limit', async () => {
    await refresh(V1, '0,2')
    expect(written).toEqual([
      [`${V1}/kata/cpuset.cpus`, '0-3'],
      [`${V1}/kata/pod/cpuset.cpus`, '0-3'],
      [`${V1}/kata/pod/c1/cpuset.cpus`, '0,2'],
    ])
  })

  it('gives a container without a limit all CPUs: v1 copied those of its creation', async () => {
    await refresh(V1, '')
    expect(written.at(-1)).toEqual([`${V1}/kata/pod/c1/cpuset.cpus`, '0-3'])
  })

  it('ignores a container that is removed meanwhile', async () => {
    os.files.onWrite = (path, data) => {
      written.push([path, data])
      throw kernelError('write', path, path.includes('c1') ? 'ENODEV' : 'ENOENT')
    }
    await refresh(V1, '')
    expect(written.map(([path]) => path)).toContain(`${V1}/kata/cpuset.cpus`)
  })

  it('names the file that cannot be written', async () => {
    os.files.onWrite = (path) => {
      throw kernelError('write', path, 'EACCES')
    }
    await expect(refresh(V1, '')).rejects.toThrow(`write ${V1}/kata/cpuset.cpus: EACCES`)
  })
})

describe('refreshCpuset on v2', () => {
  beforeEach(() => furnish(V2, { '/kata': '\n', '/kata/pod': '0\n', '/kata/pod/c1': '\n' }))

  it('skips cgroups without a limit: they have all CPUs, later ones too', async () => {
    await refresh(V2, '')
    expect(written).toEqual([[`${V2}/kata/pod/cpuset.cpus`, '0-3']])
  })

  it('sets the container’s own limit', async () => {
    await refresh(V2, '1-2')
    expect(written.at(-1)).toEqual([`${V2}/kata/pod/c1/cpuset.cpus`, '1-2'])
  })
})

async function furnish(hierarchy: string, cgroups: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, cpus] of Object.entries(cgroups)) {
    await os.files.put(`${hierarchy}${path}/cpuset.cpus`, cpus)
  }
  os.files.onWrite = (path, data) => void written.push([path, data])
}

function refresh(hierarchy: string, cpus: string): Promise<void> {
  const change = { path: '/kata/pod/c1', hierarchy, isV2: hierarchy === V2, cpus, online: '0-3' }
  return refreshCpuset(os.files, change)
}
