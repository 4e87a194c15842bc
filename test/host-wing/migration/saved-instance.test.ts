import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { Any } from '../../../src/gen/google/protobuf/any.ts'
import { State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { Payload as Container, Stage as ContainerStage } from '../../../src/gen/state/host/linuxcontainer.ts'
import { Payload as Migration } from '../../../src/gen/state/host/migration.ts'
import { Payload as Network } from '../../../src/gen/state/host/network.ts'
import { Payload as Pod, Stage as PodStage } from '../../../src/gen/state/host/pod.ts'
import { Payload as Process, Stage as ProcessStage } from '../../../src/gen/state/host/process.ts'
import { Payload as Scsi } from '../../../src/gen/state/host/scsi.ts'
import { Payload as Share } from '../../../src/gen/state/host/share.ts'
import { Payload as Vm, Stage as VmStage } from '../../../src/gen/state/host/vm.ts'
import { Payload as Vpci } from '../../../src/gen/state/host/vpci.ts'
import type { MachineFacts } from '../../../src/host/migration/payloads/machine-facts.ts'
import { restoreInstance, saveInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { FACTS } from '../../support/host-wing/machine-facts.ts'

/** What this version has written once. */
const RECORDED = new Uint8Array(
  Buffer.from(
    readFileSync(new URL('../../fixtures/state/saved-instance.base64', import.meta.url), 'utf8'),
    'base64',
  ),
)
const CODECS = {
  migration: Migration,
  vm: Vm,
  scsi: Scsi,
  vpci: Vpci,
  share: Share,
  pod: Pod,
  network: Network,
  linuxcontainer: Container,
  process: Process,
} as const

type Part = keyof typeof CODECS

/** The envelope with the first payload of a kind replaced by what `change` makes of it. */
function changed(
  part: Part,
  change: (any: Any) => Any | undefined,
  bytes: Uint8Array = RECORDED,
): Uint8Array {
  const isPart = ({ typeUrl }: Any) => typeUrl.includes(`.${part}.v1.`)
  const walk = (any: Any): Any => {
    if (isPart(any)) return change(any) as Any
    const own = Object.keys(CODECS).find((name) => any.typeUrl.includes(`.${name}.v1.`)) as Part
    const { decode, encode } = CODECS[own] as typeof Migration
    const entries = Object.entries(decode(any.value)).map(([name, value]) => [name, walkIn(value)])
    return { ...any, value: encode(Object.fromEntries(entries)).finish() }
  }
  const walkIn = (value: unknown): unknown => {
    if (isAny(value)) return walk(value)
    if (Array.isArray(value)) return value.map(walkIn)
    const isMap = typeof value === 'object' && value !== null && Object.values(value).some(isAny)
    return isMap ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, walkIn(each)])) : value
  }
  return Any.encode(walk(Any.decode(bytes))).finish()
}

function isAny(value: unknown): value is Any {
  return typeof value === 'object' && value !== null && 'typeUrl' in value && 'value' in value
}

const WHERE: Readonly<Record<Part, string>> = {
  migration: 'state',
  vm: 'state: vm',
  scsi: 'state: vm.disks',
  vpci: 'state: vm.vpci',
  share: 'state: vm.shares',
  pod: 'state: pods[0]',
  network: 'state: pods[0].network',
  linuxcontainer: 'state: pods[0].containers[0]',
  process: 'state: pods[0].containers[0].processes[""]',
}

describe('a recorded machine', () => {
  it('is written to the same bytes', () => {
    expect(Buffer.from(saveInstance(FACTS)).toString('base64')).toBe(Buffer.from(RECORDED).toString('base64'))
  })

  it('is read with what the daemon and the holder knew', () => {
    const { record, plugging, streams, rings, compatibility, savedMs } = restoreInstance(RECORDED, 'state')
    const { leaving, ...rest } = record
    expect(FACTS.record).toMatchObject(rest)
    expect(Object.keys(rest)).toHaveLength(15)
    expect(leaving.toSorted()).toEqual(FACTS.record.leaving.toSorted())
    expect(plugging).toEqual(['folders'])
    expect({ streams, rings, compatibility, savedMs }).toEqual({
      ...{ streams: FACTS.streams, rings: FACTS.rings },
      ...{ compatibility: FACTS.compatibility, savedMs: FACTS.savedMs },
    })
  })

  it('has each field of the record of an instance, but those that a host chooses anew', () => {
    const { record } = restoreInstance(RECORDED, 'state')
    const others = Object.keys(InstanceRecord.create()).filter((name) => !Object.hasOwn(record, name))
    expect(others.toSorted()).toEqual([
      ...[
        'awaiting',
        'cameFrom',
        'clone',
        'clonedKey',
        'desired',
        'generationId',
        'instanceId',
        'madeByClone',
        'operations',
        'pinnedCpus',
        'privateMemory',
        'rebootsMs',
        'runId',
      ],
      ...['savedFolder', 'savedId', 'savedName', 'sequence', 'target', 'terminated', 'uid'],
    ])
  })

  it('is read with its devices, each with what the guest had of it', () => {
    const { disks, shares, vpci } = restoreInstance(RECORDED, 'state').devices
    expect(disks.disks).toEqual({
      root: {
        ...{ stage: 1, leavingMs: undefined, guestName: 'vda' },
        mounts: [{ partition: 0, mountPoint: '/', type: 'ext4', readOnly: true }],
      },
      data: {
        ...{ stage: 2, leavingMs: 5n, guestName: 'nvme0n1' },
        mounts: [
          { partition: 2, mountPoint: '/mnt/part', type: 'xfs', readOnly: false },
          { partition: 2, mountPoint: '/run/kata-containers/c2/rootfs', type: 'xfs', readOnly: false },
        ],
      },
      image: { stage: 1, leavingMs: undefined, guestName: 'pmem0', mounts: [] },
    })
    expect(disks.reservations).toEqual({
      '/run/kata-containers/k1/rootfs': {
        stage: 1,
        disk: 'image',
        partition: 0,
        references: 1,
        shared: false,
      },
      '/mnt/part': { stage: 0, disk: 'data', partition: 2, references: 3, shared: true },
    })
    expect(shares).toMatchObject({
      shares: {
        folders: {
          ...{ stage: 0, leavingMs: undefined },
          mounts: [{ mountPoint: '/run/shared', type: 'virtiofs', readOnly: false }],
        },
      },
      reservations: { '/run/shared': { stage: 2, share: 'folders', references: 2, shared: true } },
    })
    expect(vpci.devices).toEqual({
      '0000:00:08.0': { stage: 1, instanceId: '0000:00:08', function: 0, references: 2 },
      '0000:00:09.1': { stage: 0, instanceId: '0000:00:09', function: 1, references: 1 },
    })
  })

  it('is read with its pod, whose containers name the devices', () => {
    const { pod } = restoreInstance(RECORDED, 'state')
    expect(pod).toMatchObject({ stage: PodStage.ACTIVE, id: 'pod', refusedCalls: ['ListCalls'] })
    const [lo, eth0] = FACTS.guest?.network.interfaces ?? []
    expect(lo?.name).toBe('lo')
    expect(pod.network).toMatchObject({
      endpoints: { lan: { stage: 2, leavingMs: 7n, interface: eth0 } },
      routes: FACTS.guest?.network.routes,
    })
    const [c1, c2, ...others] = pod.containers
    expect(others).toEqual([])
    const bundlePath = '/run/kata-containers/k1'
    expect(c1).toEqual({
      ...{ schemaVersion: 1, id: 'c1', stage: ContainerStage.RUNNING, ioRetryMs: 60_000n },
      layers: [`${bundlePath}/rootfs`],
      diskReservations: [`${bundlePath}/rootfs`, '/mnt/part'],
      ...{ shareReservations: ['/run/shared'], vpciDevices: ['0000:00:08.0'] },
      processes: {
        '': {
          ...{ schemaVersion: 1, stage: ProcessStage.RUNNING, pid: 100, bundlePath, hasTerminal: true },
          ...{ exit: undefined, ioRetryMs: 60_000n },
          ports: [
            {
              ...{ stream: 'stdout', port: 65_536, name: new Uint8Array([1, 2]) },
              ...{ total: 2n ** 40n + 100n, acknowledged: 2n ** 40n },
            },
          ],
        },
        e1: {
          ...{ schemaVersion: 1, stage: ProcessStage.EXITED, pid: 101, bundlePath, hasTerminal: false },
          exit: { status: 137, sequence: 8n, signal: 9, oomKilled: true, startedMs: 11n, endedMs: 12n },
          ioRetryMs: 60_000n,
          ports: [
            { stream: 'stderr', port: 65_538, name: new Uint8Array(), total: 0n, acknowledged: undefined },
          ],
        },
        // The kept exit is that of another process of the same name.
        e2: {
          ...{ schemaVersion: 1, stage: ProcessStage.EXITED, pid: 102, bundlePath, hasTerminal: false },
          exit: { status: 3, sequence: 0n, signal: 0, oomKilled: false, startedMs: 0n, endedMs: 0n },
          ...{ ioRetryMs: 60_000n, ports: [] },
        },
      },
    })
    expect(c2).toMatchObject({
      ...{
        id: 'c2',
        stage: ContainerStage.CREATED,
        layers: ['/mnt/part'],
        diskReservations: [],
        shareReservations: [],
      },
      vpciDevices: ['0000:00:08.0', '0000:00:09.1'],
      processes: { '': { stage: ProcessStage.CREATED, pid: 103, ports: [{ stream: 'stdin', total: 4n }] } },
    })
  })

  it.each(Object.keys(CODECS) as Part[])('is refused for a %s that is not known, by its name', (part) => {
    const wanted = `type.googleapis.com/microvm.state.host.${part}.v1.Payload`
    const where = WHERE[part]
    const refusal = (bytes: Uint8Array) => {
      try {
        restoreInstance(bytes, 'state')
      } catch (error) {
        expect(error).toMatchObject({ code: 'FAILED_PRECONDITION' })
        return error instanceof AgentError ? error.message : error
      }
      return 'none'
    }
    const other = changed(part, (any) => ({ ...any, typeUrl: 'type.googleapis.com/other.Payload' }))
    expect(refusal(other)).toBe(
      `${where}: type "type.googleapis.com/other.Payload": unknown, want ${wanted}, version 1`,
    )
    // A later version, and one that was written without a number.
    const later = changed(part, (any) => ({ ...any, value: Uint8Array.of(8, 2, 255) }))
    expect(refusal(later)).toBe(`${where}: type ${wanted}, version 2: unknown, want ${wanted}, version 1`)
    const none = changed(part, (any) => ({ ...any, value: any.value.subarray(2) }))
    expect(refusal(none)).toContain(`${where}: type ${wanted}, version 0: unknown`)
    const damaged = changed(part, (any) => ({ ...any, value: Uint8Array.of(8, 1, 255) }))
    expect(refusal(damaged)).toMatch(`${where}: damaged: `)
    const deep = changed(part, (any) => ({ ...any, value: Uint8Array.of(8, 1, ...Array(20_000).fill(0xfb)) }))
    expect(refusal(deep)).toMatch(`${where}: damaged: `)
  })

  it.each([
    [{ confidentialConfig: {} }, 'vm.confidential_config: ConfidentialConfig is refused'],
    [{ properties: undefined }, 'vm.properties: missing'],
    [{ specification: undefined }, 'vm.specification: missing'],
    [{ stage: 9 }, 'vm.stage: 9, want a known one'],
    [{ disks: undefined }, 'vm.disks: missing, want type.googleapis.com/microvm.state.host.scsi.v1.Payload'],
  ])('is refused for a machine with %o', (fields, text) => {
    const bytes = changed('vm', ({ typeUrl, value }) => ({
      typeUrl,
      value: Vm.encode({ ...Vm.decode(value), ...fields } as Vm).finish(),
    }))
    expect(() => restoreInstance(bytes, 'state')).toThrow(`state: ${text}`)
  })

  it('is refused with more or less than one pod', () => {
    const withPods = (count: number) =>
      changed('migration', ({ typeUrl, value }) => {
        const { pods, ...rest } = Migration.decode(value)
        const [pod] = pods as [Any]
        return { typeUrl, value: Migration.encode({ ...rest, pods: Array(count).fill(pod) }).finish() }
      })
    expect(() => restoreInstance(withPods(2), 'state')).toThrow('state: pods: 2, want one')
    expect(() => restoreInstance(withPods(0), 'state')).toThrow('state: pods[0]: missing')
  })

  it('is refused where it is cut, and never fails otherwise when a bit of it is another one', () => {
    for (let length = 0; length < RECORDED.length; length += 7)
      expect(() => restoreInstance(RECORDED.subarray(0, length), 'state')).toThrow(/^state: /)
    for (let byte = 0; byte < RECORDED.length; byte++) {
      const damaged = Uint8Array.from(RECORDED)
      damaged[byte] = (damaged[byte] ?? 0) ^ (1 << (byte & 7))
      try {
        restoreInstance(damaged, 'state')
      } catch (error) {
        expect(error).toMatchObject({ code: 'FAILED_PRECONDITION' })
      }
    }
  })

  it('is refused when it is too long, and not written either', () => {
    expect(() => restoreInstance(new Uint8Array(2 ** 24 + 1), 'state')).toThrow('want at most 16777216')
    const record = { ...FACTS.record, reason: 'x'.repeat(2 ** 24) }
    expect(() => saveInstance({ ...FACTS, record })).toThrow(/^envelope: \d+ bytes, want at most 16777216$/)
  })
})

describe('what is saved of a machine', () => {
  it.each(Object.entries(State).filter(([name]) => name !== 'STATE_UNSPECIFIED'))(
    'has the state %s',
    (name, current) => {
      const bytes = saveInstance({ ...FACTS, record: { ...FACTS.record, current } })
      expect(restoreInstance(bytes, 'state').record.current).toBe(current)
      const vm = Vm.decode(Migration.decode(Any.decode(bytes).value).vm?.value ?? new Uint8Array())
      expect(vm.stage).toBe(VmStage[name as keyof typeof VmStage])
    },
  )

  it('has no pod where no agent was asked, but the cards', () => {
    const { pod, devices } = restoreInstance(saveInstance({ ...FACTS, guest: undefined }), 'state')
    expect(pod).toMatchObject({ stage: PodStage.NONE, id: '', containers: [] })
    expect(pod.network.endpoints).toEqual({ lan: { stage: 2, leavingMs: 7n, interface: undefined } })
    expect(devices.disks).toMatchObject({ reservations: {}, disks: { root: { guestName: '', mounts: [] } } })
  })

  it('leaves open which of two disks with one serial number, or two interfaces with one address, is meant', () => {
    const { guest } = FACTS
    if (guest === undefined) return
    const devices = guest.devices.map((each) => (each.name === 'vdb' ? { ...each, serial: 'root' } : each))
    const interfaces = guest.network.interfaces.map((each) => ({
      ...each,
      hardwareAddress: '52:54:00:00:00:0a',
    }))
    const facts = { ...FACTS, guest: { ...guest, devices, network: { ...guest.network, interfaces } } }
    const restored = restoreInstance(saveInstance(facts), 'state')
    expect(restored.devices.disks.disks.root).toMatchObject({ guestName: '', mounts: [] })
    expect(restored.pod.network.endpoints.lan?.interface).toBeUndefined()
  })

  it.each([
    ['sandbox', { sandbox: { ...FACTS.guest?.sandbox, state: 'odd' } }],
    ['container', { containers: [{ ...FACTS.guest?.containers[0], state: 'odd' }] }],
  ])('is refused for an unknown state of a %s', (what, change) => {
    const facts = { ...FACTS, guest: { ...FACTS.guest, ...change } } as MachineFacts
    expect(() => saveInstance(facts)).toThrow(
      `${what}: the guest's agent tells the state "odd", which is unknown`,
    )
  })

  it('is refused for an exec id that a message cannot have as a key', () => {
    const processes = FACTS.guest?.processes.map((each) => ({ ...each, execId: '__proto__' }))
    const facts = { ...FACTS, guest: { ...FACTS.guest, processes } } as MachineFacts
    expect(() => saveInstance(facts)).toThrow('container c1: exec id __proto__: reserved')
  })
})
