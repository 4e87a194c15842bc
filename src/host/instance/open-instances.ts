import { join } from 'node:path'
import { abortable, neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import {
  type AllocatePortRequest,
  type AttachRequest,
  type AttachResponse,
  ChangeStateRequest_Change as Change,
  type ChangeStateRequest,
  type EnsureInstanceRequest,
  type ExpandRequest,
  type ExpandResponse,
  type Instance,
  type PlugRequest,
  type ReplaceBackendRequest,
  State,
  type Stream,
  type UnplugRequest,
  type WatchInstancesRequest,
  type WatchInstancesResponse,
} from '../../gen/microvm/instance/v1/instance.ts'
import { type InstanceRecord, StepRecord, StreamRecord } from '../../gen/microvm/instance/v1/records.ts'
import { instanceFolderName, specKey } from '../spec/spec-key.ts'
import { adoptAll } from './adopt.ts'
import { watchForPanic } from './console/console-panic.ts'
import { describeEqual, describeInstance, isVisible } from './describe-instance.ts'
import { refuseOtherDisks, refuseServed } from './devices/disk-in-use.ts'
import { plug, reserveCid, unplug } from './devices/plug.ts'
import { replaceBackend } from './devices/replace-backend.ts'
import { CpuChoices } from './documents/cpu-choices.ts'
import { type HostMachines, provideStart } from './documents/host-machines.ts'
import { expandedDocument, wantedInstance } from './documents/wanted-instance.ts'
import { followGuest } from './follow-guest.ts'
import { type InstanceHooks, MachineInstance } from './instance.ts'
import { printInstanceMetrics } from './instance-metrics.ts'
import { type Caller, type Instances, notFound, type OwnerCheck } from './instances.ts'
import { type HostLeases, NO_LEASES, withLease } from './leases/host-leases.ts'
import { checkFiles } from './machine/check-files.ts'
import type { Plan } from './machine/plan.ts'
import type { StepContext } from './machine/steps.ts'
import type { Uids } from './machine/uids.ts'
import type { Moves } from './moves.ts'
import { moveCalls } from './moving/move-calls.ts'
import { MovedAway, movedAway } from './moving/moved-away.ts'
import { reachAgent } from './moving/reach-agent.ts'
import { InstanceChanges } from './record/changes.ts'
import { chooseCid } from './record/choose-ids.ts'
import { instanceOf, newRecord, recordOf, shownState } from './record/instance-record.ts'
import { checkQuota, type Quotas, type QuotaUse } from './record/quota.ts'
import { RecordedInstance } from './record/recorded-instance.ts'
import { SavedRoom } from './record/saved-room.ts'
import type { Registry } from './registry/registry.ts'
import { reset } from './reset.ts'
import { cloneGone, freeMemory, type SavedCalls, savedCalls } from './saved-calls.ts'
import { mergeLater, prepareStart } from './snapshots/settle.ts'
import { type SnapshotCalls, snapshotCalls } from './snapshots/snapshot-calls.ts'
import { allocatePort, attach, console, listStreams } from './streams.ts'
import { watchDaemons } from './watch-daemons.ts'

/** What all instances have of this host. */
type SharedParts = Pick<
  StepContext,
  'holders' | 'links' | 'filters' | 'clock' | 'log' | 'limits' | 'isWalled' | 'cgroups' | 'cpus' | 'volumes'
>

export interface InstancesParts extends SharedParts {
  readonly stateFolder: string
  /** The folder of the only instance; by default each has one below the state folder. */
  readonly onlyFolder?: string | undefined
  readonly registry: Registry
  readonly plan: Plan
  readonly quotas?: Quotas | undefined
  /** Without them no instance is made of a document. */
  readonly machines?: HostMachines | undefined
  /** Of the instances' processes; without them all are the daemon's user. */
  readonly uids?: Uids | undefined
  /** Whether machines outlive this process. Then some specifications are refused, and the console's text may tell of a panic. */
  readonly isKept: boolean
  /** Without them no machine is saved. */
  readonly moves?: Moves | undefined
  /** Of machines that controllers know; without them there are none. */
  readonly leases?: HostLeases | undefined
}

/** Opens the instances of a state folder, and takes in again those that run. */
export async function openInstances(parts: InstancesParts): Promise<Instances> {
  const { registry, limits } = parts
  const [records, steps, streams, settings] = await Promise.all([
    registry.load('instances'),
    registry.load('steps'),
    registry.load('streams'),
    registry.load('settings'),
  ])
  const instances = new HostInstances(parts, new InstanceChanges(settings, limits.keptChanges))
  const stepsOf = Map.groupBy(
    [...steps.values()].map((row) => StepRecord.decode(row)),
    ({ instance }) => instance,
  )
  parts.uids?.keep([...records.values()].map((row) => recordOf(row).uid))
  for (const [key, row] of records) instances.add(key, recordOf(row), stepsOf.get(key) ?? [])
  for (const row of streams.values()) instances.addStream(StreamRecord.decode(row))
  await instances.adoptAll()
  return instances
}

class HostInstances implements Instances {
  readonly #parts: InstancesParts
  readonly #changes: InstanceChanges
  readonly #instances = new Map<string, MachineInstance>()
  /** Those that are under way. */
  readonly #adoptions = new Map<MachineInstance, Promise<void>>()
  readonly #cpus: CpuChoices
  /** Those whose start is not recorded yet, with what it would record. */
  readonly #starting = new Map<MachineInstance, InstanceRecord['document']>()
  #qmpErrors = 0
  readonly snapshot: SnapshotCalls['snapshot']
  readonly snapshots: SnapshotCalls['snapshots']
  readonly revert: SnapshotCalls['revert']
  readonly removeSnapshot: SnapshotCalls['removeSnapshot']
  readonly #saved: SavedCalls
  readonly clone: Instances['clone']
  readonly suspend: Instances['suspend']
  readonly listSaved: Instances['listSaved']
  readonly deleteSaved: Instances['deleteSaved']
  readonly move: Instances['move']

  constructor(parts: InstancesParts, changes: InstanceChanges) {
    this.#parts = parts
    this.#changes = changes
    const room = new SavedRoom(parts.moves, parts.quotas)
    const calls = snapshotCalls((key, caller) => this.#takenIn(key, caller), {
      ...{ moves: parts.moves, room },
      provide: ({ context: { folder } }, record) =>
        provideStart(parts.machines, record, { folder, isColdBoot: false }),
    })
    this.snapshot = calls.snapshot
    this.snapshots = calls.snapshots
    this.revert = calls.revert
    this.removeSnapshot = calls.removeSnapshot
    const host = {
      ...{ moves: parts.moves, volumes: parts.volumes, instances: this.#instances },
      takenIn: (key: string, caller: Caller) => this.#takenIn(key, caller),
      add: (record: InstanceRecord) => this.#addSaved(record),
    }
    this.#saved = savedCalls({ ...host, room, save: calls.saveForClones })
    this.move = moveCalls(host)
    this.clone = this.#saved.clone
    this.suspend = this.#saved.suspend
    this.listSaved = this.#saved.listSaved
    this.deleteSaved = this.#saved.deleteSaved
    this.#cpus = new CpuChoices(parts.cpus, this.#instances)
  }

  add(key: string, record: InstanceRecord, steps: readonly StepRecord[]): MachineInstance {
    const { moves, quotas: _, leases = NO_LEASES, ...parts } = this.#parts
    const { registry, plan, isKept, onlyFolder, uids, machines, ...shared } = parts
    const log = shared.log.with({ instance: key })
    const recorded = new RecordedInstance({ key, registry, changes: this.#changes, log }, record, steps)
    const name = instanceFolderName(specKey(key))
    const folder = onlyFolder ?? join(shared.stateFolder, 'instances', name)
    const among = { instances: this.#instances, moves }
    const hooks: InstanceHooks = {
      onEvent: followGuest,
      onMachine: (machineOf, machine) => {
        // Others end with their guest's panic by themselves.
        if (isKept) watchForPanic(machineOf, machine)
        watchDaemons(machineOf, machine)
        leases.follow(machineOf, machine)
        mergeLater(machineOf)
      },
      onForgotten: () => {
        this.#instances.delete(key)
        leases.forget(instance)
        if (recorded.record.uid !== 0) uids?.release(recorded.record.uid)
        if (recorded.record.clone) cloneGone(recorded.record, among)
      },
      ...{ onQmpError: () => (this.#qmpErrors += 1), onStopped: () => freeMemory(recorded.record, among) },
      prepareStart: async (starting, isSaved) => {
        const prepared = await provideStart(machines, starting.record, { folder, isColdBoot: !isSaved })
        const { specification } = { ...starting.record, ...prepared }
        if (specification !== undefined) await checkFiles(specification)
        // A machine that is expanded anew may have a device that the one before had not.
        const vsock = Object.values(specification?.devices ?? {}).find((device) => device.vsock)?.vsock
        if (vsock !== undefined && !isSaved)
          await reserveCid(starting, vsock.cid, (cid) => this.#chooseCid(cid))
        // The layers of a saved machine come with its other files, which were checked.
        if (isSaved) refuseOtherDisks(starting.record.document, prepared.document)
        else await prepareStart(starting, { ...starting.record, ...prepared })
        refuseServed(prepared.document, starting, this.#starting)
        this.#starting.set(starting, prepared.document)
        const pinnedCpus = await this.#cpus.choose(starting, prepared.document)
        return { ...prepared, pinnedCpus }
      },
      checkStart: (starting, prepared) =>
        this.#checkQuota({ ...starting.record, ...prepared, state: starting.record.current }, starting),
      ...{ beginRun: leases.begin, removalOf: leases.removalOf, all: () => this.#instances.values() },
      onRecorded: (starting) => {
        this.#starting.delete(starting)
        this.#cpus.recorded(starting)
      },
      plugParts: { chooseCid: (cid) => this.#chooseCid(cid), machines, moves, starting: this.#starting },
    }
    const instance = new MachineInstance({ ...shared, log, recorded, plan, folder, hooks })
    this.#instances.set(key, instance)
    return instance
  }

  /** An instance of a saved machine, with a user and a context id that no other has. */
  #addSaved(record: InstanceRecord): MachineInstance {
    this.#checkQuota({ ...record, state: State.CREATING })
    const { cid: wanted, specification } = record
    const isFree = wanted !== 0 && !this.#records().some(({ cid }) => cid === wanted)
    const hasVsock = Object.values(specification?.devices ?? {}).some(({ vsock }) => vsock !== undefined)
    const cid = isFree ? wanted : hasVsock || wanted !== 0 ? this.#chooseCid(0) : 0
    return this.add(record.properties?.key ?? '', { ...record, cid, uid: this.#parts.uids?.claim() ?? 0 }, [])
  }

  addStream(record: StreamRecord): void {
    this.#instances.get(record.instance)?.streams.set(record.port, record)
  }

  /** Resolves when all are taken in again, or after a while: calls of those that are not wait for it. */
  async adoptAll(): Promise<void> {
    await adoptAll([...this.#instances.values()], this.#adoptions, this.#parts)
  }

  async expand({ document }: ExpandRequest, { tenant }: Caller): Promise<ExpandResponse> {
    return { machine: await expandedDocument(document, tenant === undefined, this.#parts.machines) }
  }

  async ensure(request: EnsureInstanceRequest, caller: Caller, checkOwner?: OwnerCheck): Promise<Instance> {
    const lease = (this.#parts.leases ?? NO_LEASES).check(request)
    const target = request.migrationTarget
    if (target !== undefined) return await this.move.ensureTarget(request, target, caller)
    if (request.saved !== undefined) return await this.#saved.ensure(request, caller, checkOwner)
    const wanted = withLease(wantedInstance(request, caller, this.#parts), lease)
    const key = specKey(request.properties?.key ?? '')
    const known = this.#instances.get(key)
    if (known !== undefined)
      return (await describeEqual(known, wanted, caller)) ?? (await this.ensure(request, caller))
    const tenant = caller.tenant ?? request.properties?.tenant ?? ''
    const properties = { key, tenant, labels: request.properties?.labels ?? {}, lease }
    const { cid, document, specification } = await wanted.make(key)
    // Another call may have made it meanwhile.
    if (this.#instances.has(key)) return await this.ensure(request, caller)
    this.#checkQuota({ properties, specification, state: State.CREATING })
    const facts = {
      cid: cid === undefined ? 0 : this.#chooseCid(cid),
      uid: this.#parts.uids?.claim() ?? 0,
      nowMs: Math.round(performance.timeOrigin + performance.now()),
      document,
    }
    const instance = this.add(key, newRecord(properties, specification, facts), [])
    caller.inStep('making the machine')
    await instance.change(() => instance.start({ isNew: true, desired: State.PAUSED }), neverAborted)
    return await describeInstance(instance)
  }

  async get(key: string, caller: Caller): Promise<Instance> {
    return await describeInstance(await this.#takenIn(key, caller))
  }

  list(caller: Caller): readonly Instance[] {
    const visible = [...this.#instances.values()].filter((instance) => isVisible(instance, caller))
    return visible.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ record }) => instanceOf(record))
  }

  watch(request: WatchInstancesRequest, { tenant, signal }: Caller): AsyncIterable<WatchInstancesResponse> {
    const isSeen = (change: { readonly tenant: string }) => tenant === undefined || change.tenant === tenant
    return this.#changes.watch(request, isSeen, signal)
  }

  async changeState({ key, change, graceMs }: ChangeStateRequest, caller: Caller): Promise<Instance> {
    const instance = this.#get(key, caller)
    caller.inStep(`changing the state`)
    switch (change) {
      case Change.RUN:
        return await this.#change(instance, caller, () => instance.run())
      case Change.PAUSE:
        return await this.#change(instance, caller, () => instance.pause())
      case Change.RESET:
        return await this.#change(instance, caller, () => reset(instance, caller))
      case Change.STOP:
        return await this.#change(instance, caller, () =>
          instance.stop(graceMs || this.#parts.limits.powerOffMs),
        )
      case Change.KILL:
        await instance.kill(caller.signal)
        return await describeInstance(instance)
      default:
        throw new AgentError('INVALID_ARGUMENT', `change: ${change}, want a known one`)
    }
  }

  async replaceBackend({ key, ...replaced }: ReplaceBackendRequest, caller: Caller): Promise<Instance> {
    const instance = this.#get(key, caller)
    return await this.#change(instance, caller, () => replaceBackend(instance, replaced, caller))
  }

  async plug(request: PlugRequest, caller: Caller): Promise<Instance> {
    const instance = this.#get(request.key, caller)
    const deviceKey = specKey(request.deviceKey)
    return await this.#change(instance, caller, () =>
      plug(instance, { ...request, deviceKey }, instance.plugParts, caller),
    )
  }

  async unplug(request: UnplugRequest, caller: Caller): Promise<Instance> {
    const instance = this.#get(request.key, caller)
    const deviceKey = specKey(request.deviceKey)
    return await this.#change(instance, caller, () => unplug(instance, { ...request, deviceKey }))
  }

  async remove(key: string, caller: Caller): Promise<void> {
    await this.#get(key, caller).remove(caller.signal)
  }

  async allocatePort(request: AllocatePortRequest, caller: Caller): Promise<Stream> {
    const instance = this.#get(request.key, caller)
    return await instance.change(() => allocatePort(instance, request), caller.signal)
  }

  async *attach(request: AttachRequest, caller: Caller): AsyncGenerator<AttachResponse> {
    try {
      yield* attach(await this.#takenIn(request.key, caller), request, caller.signal)
    } catch (error) {
      if (!(error instanceof MovedAway)) throw error
      yield { offset: request.offset, data: new Uint8Array(0), moved: error.moved }
    }
  }

  async streams(key: string, caller: Caller): Promise<readonly Stream[]> {
    return await listStreams(await this.#takenIn(key, caller))
  }

  connectAgent(...[key, input, caller, passed]: Parameters<Instances['connectAgent']>) {
    const { signal } = caller
    const find = () => this.#takenIn(key, caller)
    return reachAgent({ key, input, signal, passed, find, dial: this.#parts.moves?.hosts?.dial })
  }

  async *console(key: string, input: AsyncIterable<Uint8Array>, caller: Caller): AsyncGenerator<Uint8Array> {
    yield* console(await this.#takenIn(key, caller), input, caller.signal)
  }

  metrics(): string {
    const figures = printInstanceMetrics(this.#records().map(shownState), {
      changes: this.#changes.counts,
      qmpErrors: this.#qmpErrors,
    })
    return `${figures}${this.#parts.moves?.metrics() ?? ''}`
  }

  async close(): Promise<void> {
    for (const part of [this.#parts.leases, this.#parts.volumes]) part?.close()
    for (const instance of this.#instances.values()) instance.close()
    this.#parts.holders.close?.()
  }

  async #change(instance: MachineInstance, caller: Caller, change: () => Promise<void>): Promise<Instance> {
    await instance.change(change, caller.signal)
    return await describeInstance(instance)
  }

  #get(key: string, caller: Caller): MachineInstance {
    const instance = this.#instances.get(specKey(key))
    if (instance === undefined || !isVisible(instance, caller)) throw notFound(key)
    return instance
  }

  /** The same, for calls that are not changes. */
  async #takenIn(key: string, caller: Caller): Promise<MachineInstance> {
    if (!this.#instances.has(specKey(key)))
      throw (await movedAway(this.#parts.registry, specKey(key), caller)) ?? notFound(key)
    const instance = this.#get(key, caller)
    const adoption = this.#adoptions.get(instance)
    if (adoption !== undefined) {
      caller.inStep('waiting until the instance is taken in again')
      await abortable(adoption, caller.signal)
    }
    return instance
  }

  #checkQuota(next: QuotaUse, starting?: MachineInstance): void {
    const { quotas } = this.#parts
    if (quotas === undefined) return
    const others = this.#records().filter((record) => record !== starting?.record)
    const uses = others.map((record) => ({ ...record, state: record.current }))
    checkQuota(quotas, next, uses)
  }

  #chooseCid(wanted: number): number {
    return chooseCid(wanted, new Set(this.#records().map(({ cid }) => cid)))
  }

  #records(): readonly Readonly<InstanceRecord>[] {
    return [...this.#instances.values()].map(({ record }) => record)
  }
}
