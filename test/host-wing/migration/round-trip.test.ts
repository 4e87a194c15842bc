import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import {
  Container,
  type Exit,
  ListContainersResponse,
  ListMountsResponse,
  ListProcessesResponse,
  Process,
  Process_Role as Role,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { StreamTotal } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  Layer,
  Properties,
  Snapshot,
  Specification,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import {
  DocumentRecord,
  InstanceRecord,
  StepRecord,
  StreamRecord,
} from '../../../src/gen/microvm/instance/v1/records.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { newRecord, recordOf, recordRow } from '../../../src/host/instance/record/instance-record.ts'
import { askGuest } from '../../../src/host/migration/payloads/ask-guest.ts'
import type { MachineFacts } from '../../../src/host/migration/payloads/machine-facts.ts'
import { restoreInstance, saveInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { FACTS } from '../../support/host-wing/machine-facts.ts'
import { ADMIN, ensureRequest, file, specification } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

describe('a machine of one daemon, saved and restored into another', () => {
  const run = (instances: Instances) =>
    instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)

  it('is the same there in all that is saved, and its next stream gets the next port', async () => {
    const [source, target] = [new FakeWing(), new FakeWing()]
    const before = await source.open()
    const { devices, backends } = specification()
    const more = {
      devices: { ...devices, vsock: { backend: 'socket', slot: 7, vsock: { cid: 40 } } },
      backends: { ...backends, socket: { vsockDaemon: {} } },
    }
    await before.ensure(ensureRequest('web', { tenant: 't', specification: more }), ADMIN)
    await run(before)
    await before.allocatePort({ key: 'web', container: 'c', exec: 'e', stream: 'stderr' }, ADMIN)
    const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
    await before.plug({ key: 'web', deviceKey: 'data', device, backend: file('/disks/data-64M') }, ADMIN)
    // The guest keeps it.
    source.holders.qemu.isPolite = false
    await before.unplug({ key: 'web', deviceKey: 'data', graceMs: 1 }, ADMIN)
    await before.changeState({ key: 'web', change: Change.PAUSE, graceMs: 0 }, ADMIN)
    const known = await before.streams('web', ADMIN)
    const facts = await factsIn(source)
    expect(facts.record).toMatchObject({
      cid: 40,
      current: State.PAUSED,
      leaving: ['data'],
      nextPort: 65_537,
    })
    await before.close()

    const restored = restoreInstance(saveInstance(facts), 'state')
    expect(facts.record).toMatchObject(restored.record)
    const { record, streams } = restored
    const own = {
      ...newRecord(record.properties, record.specification, { cid: 0, uid: 0, nowMs: 0 }),
      ...record,
    }
    const stopped = { ...own, desired: State.STOPPED, current: State.STOPPED }
    await target.registry.commit([
      recordRow('web', stopped),
      ...streams.map((stream) => ({
        ...{ table: 'streams' as const, key: `web/${stream.port}` },
        payload: StreamRecord.encode({ instance: 'web', ...stream }).finish(),
      })),
    ])
    const after = await target.open()
    expect(await after.streams('web', ADMIN)).toMatchObject(
      known.map(({ port, container, exec, stream }) => ({ port, container, exec, stream })),
    )
    const again = restoreInstance(saveInstance(await factsIn(target)), 'state')
    expect(again).toEqual({ ...restored, record: { ...restored.record, current: State.STOPPED } })
    await run(after)
    const next = await after.allocatePort({ key: 'web', container: 'd', exec: '', stream: 'stdin' }, ADMIN)
    expect(next.port).toBe(65_537)
    await after.close()
  })

  async function factsIn({ registry }: FakeWing): Promise<MachineFacts> {
    const [record, steps, streams] = await Promise.all([
      registry.load('instances'),
      registry.load('steps'),
      registry.load('streams'),
    ])
    const row = record.get('web') ?? new Uint8Array()
    return {
      ...{ record: recordOf(row), steps: [...steps.values()].map((step) => StepRecord.decode(step)) },
      streams: [...streams.values()].map((each) => {
        const { instance: _, ...stream } = StreamRecord.decode(each)
        return stream
      }),
      ...{ rings: [], compatibility: undefined, guest: undefined, savedMs: 5n },
    }
  }
})

const u32 = fc.integer({ min: 0, max: 2 ** 32 - 1 })
const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })
const text = fc.oneof(fc.constantFrom('', 'a', 'toString', '/a/b', 'ä\n'), fc.string({ unit: 'grapheme' }))
const key = text.filter((each) => each !== '__proto__')
const few = <T>(item: fc.Arbitrary<T>) => fc.array(item, { maxLength: 4 })

/** A device of some kind; `name` makes its serial number, its tag and its address those of no other. */
function deviceNamed(name: string): fc.Arbitrary<object> {
  const mac = `52:54:00:00:00:${Buffer.from(name).toString('hex').padStart(2, '0').slice(0, 2)}`
  return fc.constantFrom(
    { disk: { serial: `s-${name}`, nvme: true } },
    { persistentMemory: { sizeBytes: 5n } },
    { nic: { mac, filters: ['clean-traffic'] } },
    { share: { tag: `t-${name}` } },
    { vsock: { cid: 9 } },
    { serial: {} },
  )
}

const record = fc
  .uniqueArray(key, { maxLength: 5 })
  .chain((keys) =>
    fc.record({
      devices: fc.tuple(...keys.map((each) => deviceNamed(each))),
      leaving: fc.subarray(keys),
      times: fc.tuple(...keys.map(() => fc.option(fc.bigInt({ min: 1n, max: 2n ** 60n })))),
      keys: fc.constant(keys),
      rest: fc.record({
        ...{
          cid: u32,
          bootId: text,
          reason: text,
          reboots: u32,
          nextPort: u32,
          lastLayer: u32,
          createdMs: u64,
        },
        current: fc.constantFrom(
          ...Object.values(State).filter((state) => state !== State.STATE_UNSPECIFIED),
        ),
        resets: few(text),
        properties: fc.record({ key: text, tenant: text }).map(Properties.fromPartial),
        document: fc.option(fc.record({ given: text, saved: text }).map(DocumentRecord.fromPartial), {
          nil: undefined,
        }),
        layers: few(fc.record({ id: u32, base: text }).map(Layer.fromPartial)),
        snapshots: few(fc.record({ name: text, createdMs: u64 }).map(Snapshot.fromPartial)),
      }),
    }),
  )
  .map(({ devices, keys, leaving, times, rest }) => {
    const leavingMs = keys.flatMap((each, index) => {
      const time = times[index] ?? undefined
      return time === undefined || !leaving.includes(each) ? [] : [[each, time]]
    })
    return {
      ...InstanceRecord.create(),
      ...rest,
      ...{ leaving, leavingMs: Object.fromEntries(leavingMs) },
      specification: Specification.fromPartial({
        devices: Object.fromEntries(keys.map((each, index) => [each, devices[index]])),
      }),
    }
  })

const stream = fc.constantFrom('stdin', 'stdout', 'stderr')
const execs = fc.uniqueArray(key, { maxLength: 4 })
const pods = fc.uniqueArray(text, { maxLength: 3 }).chain((ids) =>
  fc.tuple(
    ...ids.map((containerId) =>
      fc.record({
        container: fc
          .record({
            state: fc.constantFrom('created', 'running', 'paused', 'stopped'),
            ...{ bundle: fc.constantFrom('', '/b'), storages: fc.subarray(['/b/rootfs', '/m1', '/m2']) },
          })
          .map((each) => Container.fromPartial({ ...each, containerId })),
        processes: execs.chain((own) =>
          fc.tuple(
            ...own.map((execId) =>
              fc.record({
                process: fc
                  .record({
                    pid: u32,
                    hasTerminal: fc.boolean(),
                    exitStatus: fc.option(u32, { nil: undefined }),
                  })
                  .map(({ exitStatus, ...each }) =>
                    Process.fromPartial({
                      ...each,
                      containerId,
                      execId,
                      role: Role.EXEC,
                      exitStatus: exitStatus && 3,
                    }),
                  ),
                ports: few(
                  fc
                    .record({
                      stream,
                      port: u32,
                      total: u64,
                      acknowledged: fc.option(u64, { nil: undefined }),
                    })
                    .map((each) => StreamTotal.fromPartial({ ...each, containerId, execId })),
                ),
              }),
            ),
          ),
        ),
      }),
    ),
  ),
)

describe('any machine', () => {
  it('is read with what was saved of it, and saved to the same bytes', () => {
    const seen = { containers: 0, ports: 0, leaving: 0 }
    const rings = few(fc.record({ number: u32, first: u64, end: u64, closed: fc.boolean() }))
    const streams = few(fc.record({ port: u32, container: text, exec: text, stream }))
    fc.assert(
      fc.property(record, pods, rings, streams, u64, (own, pod, ringList, streamList, savedMs) => {
        const containers = pod.map(({ container }) => container)
        const processes = pod.flatMap((each) => each.processes.map(({ process }) => process))
        const totals = pod.flatMap((each) => each.processes.flatMap(({ ports }) => ports))
        const guest = { ...FACTS.guest, containers, processes, streams: totals, exits: [] as Exit[] }
        const facts = {
          ...FACTS,
          record: own,
          guest,
          rings: ringList,
          streams: streamList,
          savedMs,
        } as MachineFacts
        const bytes = saveInstance(facts)
        expect(saveInstance(facts)).toEqual(bytes)
        const restored = restoreInstance(bytes, 'state')
        const { leaving, ...rest } = restored.record
        expect(own).toMatchObject(rest)
        expect(leaving.toSorted()).toEqual(own.leaving.toSorted())
        expect(restored).toMatchObject({ rings: ringList, streams: streamList, savedMs })
        expect(restored.pod.containers.map(({ id }) => id)).toEqual(
          containers.map((each) => each.containerId),
        )
        for (const [index, saved] of restored.pod.containers.entries()) {
          const told = pod[index]?.processes ?? []
          expect(Object.keys(saved.processes).toSorted()).toEqual(
            told.map(({ process }) => process.execId).toSorted(),
          )
          for (const { process, ports } of told) {
            const { pid, hasTerminal, exitStatus, execId } = process
            expect(saved.processes[execId]).toMatchObject({ pid, hasTerminal })
            expect(saved.processes[execId]?.exit?.status).toBe(exitStatus)
            const known = ports.map(({ containerId: _c, execId: _e, state: _s, ...port }) => port)
            expect(saved.processes[execId]?.ports).toEqual(known)
          }
        }
        seen.containers += containers.length
        seen.ports += totals.length
        seen.leaving += leaving.length
      }),
      { numRuns: 300 },
    )
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(50)
  })
})

describe('an agent that is asked', () => {
  const answers: Readonly<Record<string, Uint8Array>> = {
    ListContainers: ListContainersResponse.encode({
      containers: [Container.fromPartial({ containerId: 'c1' })],
    }).finish(),
    ListMounts: ListMountsResponse.encode(
      ListMountsResponse.fromPartial({ mounts: [{ mountPoint: '/' }] }),
    ).finish(),
  }
  const agent = (own: Readonly<Record<string, Uint8Array | AgentError>>) => ({
    call: async (_service: string, method: string) => {
      const answer = own[method] ?? answers[method] ?? new Uint8Array()
      if (answer instanceof AgentError) throw answer
      return answer
    },
  })
  const ask = (own: Readonly<Record<string, Uint8Array | AgentError>>) =>
    askGuest(agent(own), { streams: [] }, neverAborted)

  it('tells the rest where its policy refuses a call, which is named', async () => {
    const denied = new AgentError('PERMISSION_DENIED', 'ListContainersRequest is blocked by policy: ')
    const facts = await ask({ ListContainers: denied, ListDevices: denied })
    expect(facts).toMatchObject({ containers: [], refusedCalls: ['ListContainers', 'ListDevices'] })
    expect(facts.mounts.mounts).toMatchObject([{ mountPoint: '/' }])
    await expect(ask({ GetNetwork: new AgentError('UNAVAILABLE', 'gone') })).rejects.toThrow('gone')
  })

  it('tells the processes that it tracks, and is refused when it leaves some out', async () => {
    const listed = (omitted: number, ...roles: Role[]) => ({
      ListProcesses: ListProcessesResponse.encode({
        processes: roles.map((role) => Process.fromPartial({ role })),
        omitted,
      }).finish(),
    })
    const { processes } = await ask(listed(7, Role.INIT, Role.EXEC, Role.OTHER))
    expect(processes.map(({ role }) => role)).toEqual([Role.INIT, Role.EXEC])
    await expect(ask(listed(1, Role.INIT, Role.EXEC))).rejects.toThrow('container c1: more than 2 processes')
  })
})
