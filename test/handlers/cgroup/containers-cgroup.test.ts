import { beforeEach, describe, expect, it } from 'vitest'
import { ContainersCgroup } from '../../../src/handlers/cgroup/containers-cgroup.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'

const MIB = 2 ** 20
const V2 = '/sys/fs/cgroup/containers'
const V1 = '/sys/fs/cgroup/memory/containers'

let os: FakeOs
let log: ReturnType<typeof recordingLog>

beforeEach(async () => {
  os = new FakeOs()
  log = recordingLog()
})

function cgroupOf(reserveMib = 64): ContainersCgroup {
  return new ContainersCgroup({ os, log: log.log, path: '/containers', reserveMib })
}

async function guestHas(totalMib: number, availableMib: number): Promise<void> {
  const line = (name: string, mib: number) => `${`${name}:`.padEnd(16)}${mib * 1024} kB\n`
  const text = `${line('MemTotal', totalMib)}${line('MemFree', 1)}${line('MemAvailable', availableMib)}`
  await os.files.put('/proc/meminfo', text)
}

/** A guest with cgroup v2 whose containers use `usedMib`, of which `fileMib` are unmapped file pages. */
async function onV2(usedMib = 0, fileMib = 0): Promise<void> {
  await os.files.put('/sys/fs/cgroup/cgroup.controllers', 'cpu memory pids\n')
  await os.files.put('/sys/fs/cgroup/cgroup.subtree_control', 'cpu memory pids\n')
  await os.files.put(`${V2}/memory.max`, 'max\n')
  await os.files.put(`${V2}/memory.current`, `${usedMib * MIB}\n`)
  await os.files.put(`${V2}/memory.stat`, `anon 7\ninactive_file ${fileMib * MIB}\nactive_file 0\n`)
}

async function mibOf(file: string): Promise<number> {
  return Number(await os.files.readText(file)) / MIB
}

describe('ContainersCgroup on cgroup v2', () => {
  beforeEach(() => onV2())

  it('leaves the reserve of what is available, and slows containers down below that', async () => {
    await guestHas(4096, 4000)
    await cgroupOf().limit()
    expect(await mibOf(`${V2}/memory.max`)).toBe(3936)
    expect(await mibOf(`${V2}/memory.high`)).toBe(3928)
  })

  it('leaves a small guest an eighth of its memory', async () => {
    await guestHas(256, 192)
    await cgroupOf().limit()
    expect(await mibOf(`${V2}/memory.max`)).toBe(160)
    expect(await mibOf(`${V2}/memory.high`)).toBe(158.75)
  })

  it('returns the same limit whatever containers use and read', async () => {
    await onV2(1000, 600)
    await guestHas(4096, 3600)
    await cgroupOf().limit()
    expect(await mibOf(`${V2}/memory.max`)).toBe(3936)
  })

  it('is never below the unreclaimable memory of the containers', async () => {
    await onV2(1000, 600)
    await guestHas(4096, 10)
    await cgroupOf().limit()
    expect(await mibOf(`${V2}/memory.max`)).toBe(400)
  })

  it('follows the memory of the guest', async () => {
    await guestHas(4096, 4000)
    const cgroup = cgroupOf()
    await cgroup.limit()
    await guestHas(8192, 8000)
    await cgroup.limitAgain()
    expect(await mibOf(`${V2}/memory.max`)).toBe(7936)
  })

  it('follows the memory of the guest while a creation limits it', async () => {
    await guestHas(4096, 4000)
    const cgroup = cgroupOf()
    const { files } = os
    const { stat } = files
    files.stat = async (path) => {
      files.stat = stat
      await cgroup.limit()
      await guestHas(8192, 8000)
      return files.stat(path)
    }
    await cgroup.limitAgain()
    expect(await mibOf(`${V2}/memory.max`)).toBe(7936)
  })

  it('has the limit of the last second, which many creations share', async () => {
    await guestHas(4096, 4000)
    const cgroup = cgroupOf()
    await cgroup.limit()
    await guestHas(4096, 3000)
    await cgroup.limit()
    expect(await mibOf(`${V2}/memory.max`)).toBe(3936)
    os.clock.advance(1000)
    await cgroup.limit()
    expect(await mibOf(`${V2}/memory.max`)).toBe(2936)
  })

  it('has no limit without a reserve', async () => {
    await guestHas(4096, 4000)
    await cgroupOf().limit()
    await cgroupOf(0).limit()
    expect(await os.files.readText(`${V2}/memory.max`)).toBe('max')
    expect(await os.files.readText(`${V2}/memory.high`)).toBe('max')
  })

  it('warns once, with the reason, where it cannot be limited', async () => {
    await guestHas(4096, 4000)
    os.files.onWrite = (path) => {
      if (path === `${V2}/memory.max`) throw kernelError('write', path, 'EACCES')
    }
    const cgroup = cgroupOf()
    await cgroup.limit()
    await cgroup.limit()
    expect(log.lines).toEqual([
      expect.objectContaining({
        level: 'warn',
        message: 'memory of all containers not limited',
        fields: { cgroup: '/containers', error: `write ${V2}/memory.max: EACCES` },
      }),
    ])
  })

  it('is removed with the cgroups that are left below it', async () => {
    await os.files.makeDirectories('/sys/fs/cgroup/containers/default/r1')
    await os.files.removeTree(`${V2}`)
    await os.files.makeDirectories('/sys/fs/cgroup/containers/default/r1')
    await cgroupOf().remove()
    expect(await os.files.stat(V2)).toBeUndefined()
  })
})

describe('ContainersCgroup', () => {
  it('is limited on cgroup v1', async () => {
    await os.files.put(`${V1}/memory.usage_in_bytes`, `${1000 * MIB}\n`)
    await os.files.put(`${V1}/memory.stat`, `inactive_file 1\ntotal_inactive_file ${600 * MIB}\n`)
    await guestHas(4096, 3600)
    await cgroupOf().limit()
    expect(await mibOf(`${V1}/memory.limit_in_bytes`)).toBe(3936)
    await cgroupOf(0).limit()
    expect(await os.files.readText(`${V1}/memory.limit_in_bytes`)).toBe('-1')
  })

  it('is not made before there are containers', async () => {
    await os.files.makeDirectories('/sys/fs/cgroup/memory')
    await guestHas(4096, 4000)
    await cgroupOf().limitAgain()
    expect(await os.files.stat(V1)).toBeUndefined()
  })

  it('is not made without the memory controller, which is logged once', async () => {
    await os.files.put('/sys/fs/cgroup/cgroup.controllers', 'cpu pids\n')
    const cgroup = cgroupOf()
    await cgroup.limit()
    await cgroup.limit()
    expect(log.lines.map(({ fields }) => fields)).toEqual([
      { cgroup: '/containers', error: 'the kernel has no memory controller' },
    ])
    expect(await os.files.stat(V2)).toBeUndefined()
  })

  it('has its controller enabled first', async () => {
    await onV2()
    await os.files.removeFile(`${V2}/memory.max`)
    await guestHas(4096, 4000)
    await cgroupOf().limit()
    expect(await os.files.readText('/sys/fs/cgroup/cgroup.subtree_control')).toBe('+memory')
  })
})

describe('removeParents', () => {
  it.each([
    ['v2', V2],
    ['v1', V1],
  ])('removes what is between, but not what another container needs, on %s', async (version, folder) => {
    await (version === 'v2' ? onV2() : os.files.makeDirectories(V1))
    await os.files.makeDirectories(`${folder}/kubepods/pod1`)
    await os.files.makeDirectories(`${folder}/kubepods/pod2/other`)
    await os.files.makeDirectories(`${folder}/soon`)
    const cgroup = cgroupOf()
    await cgroup.removeParents('/containers/kubepods/pod1/c1', [])
    expect(await os.files.listFolders(`${folder}/kubepods`)).toEqual(['pod2'])
    await cgroup.removeParents('/containers/soon/c1', ['/containers/soon/c2'])
    await cgroup.removeParents('/containers/c1', [])
    expect(await os.files.listFolders(folder)).toEqual(['kubepods', 'soon'])
    await cgroup.removeParents('/containers/soon/c2', [])
    expect(await os.files.listFolders(folder)).toEqual(['kubepods'])
  })
})
