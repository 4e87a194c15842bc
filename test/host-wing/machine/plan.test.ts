import { describe, expect, it } from 'vitest'
import { type Limits, Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { newDocument } from '../../../src/host/instance/documents/document-record.ts'
import { MAX_STATE_FOLDER_BYTES } from '../../../src/host/instance/limits.ts'
import { guestSocket } from '../../../src/host/instance/machine/daemon-steps.ts'
import { planFor } from '../../../src/host/instance/machine/plan.ts'
import { readMachine } from '../../../src/host/machine/document/document.ts'
import { MAX_SOCKET_PATH_BYTES } from '../../../src/host/spec/limits.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import type { LimitController } from '../../../src/os/cgroup/limited-cgroups.ts'
import { expanded } from '../../support/host-wing/expansion.ts'
import { specification } from '../../support/wing/requests.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'

describe('the plan of a start', () => {
  it('has paths of sockets that fit, in the longest state folder', async () => {
    const plan = planFor({
      ...{ acceleration: 'tcg', tscKhz: undefined, isKept: true },
      program: async (name) => name,
    })
    const state = '/'.padEnd(MAX_STATE_FOLDER_BYTES, 'x')
    const folder = `${state}/instances/${instanceFolderName(specKey(UUID))}`
    const record = InstanceRecord.fromPartial({
      cid: 3,
      specification: specification({
        devices: {
          link: { backend: 'link-daemon', slot: 3, vsock: {} },
          card: { backend: 'card-daemon', slot: 4, nic: { mac: '02:00:00:00:00:01' } },
          share: { backend: 'share-daemon', slot: 5, share: { tag: 'tree' } },
        },
        backends: {
          'link-daemon': { vsockDaemon: {} },
          'card-daemon': { passt: {} },
          'share-daemon': { virtiofsd: { path: '/srv' } },
        },
      }),
    })
    const steps = await plan(record, folder)
    const sockets = steps.flatMap(({ words }) => words.filter((word) => word.endsWith('.sock')))
    const lengths = [...sockets, `${guestSocket(folder)}_${2 ** 32 - 1}`].map((path) => path.length)
    expect(lengths).toHaveLength(6)
    expect(Math.max(...lengths)).toBe(MAX_SOCKET_PATH_BYTES)
  })
})

it.each([
  ['is given back by the balloon', {}, ['67108864']],
  // As an older version has recorded it.
  ['stays where there is no balloon', { balloon0: undefined }, []],
])('memory beyond the current one %s', async (_what, change, expected) => {
  const { devices, ...rest } = expanded({ memory: { size: 128, current: 64 } })
  const machine = JSON.stringify({ ...rest, devices: { ...devices, ...change } })
  const document = newDocument('', 'fixed', true, readMachine(JSON.parse(machine)))
  const plan = planFor({
    ...{ acceleration: 'tcg', tscKhz: undefined, isKept: true },
    program: async (name) => name,
  })
  const record = InstanceRecord.fromPartial({ document: { ...document, current: machine, backends: '{}' } })
  const steps = await plan(record, '/state/instances/web')
  expect(steps.flatMap(({ step, words }) => (step === 'balloon' ? words.slice(1) : []))).toEqual(expected)
})

describe('the limits of a start', () => {
  const planned = async (limits: Limits, controllers?: readonly LimitController[]) => {
    const plan = planFor({
      ...{ acceleration: 'kvm', tscKhz: undefined, isKept: true },
      program: async (name) => name,
      cgroups: controllers && new Set(controllers),
    })
    const room = { cpus: 3, memoryMib: 1000n, memorySlots: 2 }
    const { board, ...rest } = specification()
    const machine = Specification.fromPartial({ ...rest, board: { ...board, room }, limits })
    return (await plan(InstanceRecord.fromPartial({ specification: machine }), '/state/instances/web'))[1]
  }

  it('are what is wanted, or by what the machine may have at most', async () => {
    const all = ['memory', 'cpu', 'pids'] as const
    expect(await planned({ memoryMib: 100n, cpuMilli: 20, tasks: 30 }, all)).toMatchObject({
      step: 'cgroup',
      words: ['', expect.stringMatching(/^web-[0-9a-f]{8}$/)],
      limits: { memoryBytes: 100 * 2 ** 20, cpuMilli: 20, tasks: 30 },
    })
    expect(await planned({ memoryMib: 0n, cpuMilli: 0, tasks: 0 }, all)).toMatchObject({
      limits: { memoryBytes: (64 + 1000 + 512) * 2 ** 20, cpuMilli: undefined, tasks: 4 + 512 },
    })
  })

  it.each([
    ['limits.memory_mib', { memoryMib: 100n, cpuMilli: 0, tasks: 0 }, ['cpu', 'pids']],
    ['limits.cpu_milli', { memoryMib: 0n, cpuMilli: 20, tasks: 0 }, ['memory', 'pids']],
    ['limits.tasks', { memoryMib: 0n, cpuMilli: 0, tasks: 20 }, undefined],
  ] as const)('are refused by name where no cgroup holds them: %s', async (name, limits, controllers) => {
    await expect(planned(limits, controllers)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining(`${name}: this host has no writable cgroup`),
    })
  })

  it('are none where none are wanted and no cgroup is writable', async () => {
    expect(await planned({ memoryMib: 0n, cpuMilli: 0, tasks: 0 })).toMatchObject({ step: 'holder' })
  })
})

describe('the user of QEMU', () => {
  const wallsWith = async (kvm: 'all' | 'root' | number, acceleration: 'kvm' | 'tcg') => {
    const plan = planFor({
      ...{ acceleration, tscKhz: undefined, isKept: true, walls: { kvm } },
      program: async (name) => name,
    })
    const record = InstanceRecord.fromPartial({ uid: 70_000, specification: specification() })
    const steps = await plan(record, '/state/instances/web')
    const { walls = [] } = steps.find(({ step }) => step === 'qemu') ?? {}
    return walls.filter((wall) => !/^\w+=\d+:/.test(wall))
  }
  const user = ['network=none', 'processes=own', 'uid=70000']

  it.each([
    ['all', 'kvm', user],
    [105, 'kvm', [...user, 'group=105']],
    ['root', 'kvm', ['network=none']],
    ['root', 'tcg', user],
  ] as const)('is the instance with the right to use KVM: %s, %s', async (kvm, acceleration, expected) => {
    expect(await wallsWith(kvm, acceleration)).toEqual(expected)
  })
})
