import { AgentError, messageOf } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import type {
  Backend,
  PlugRequest,
  Specification,
  UnplugRequest,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { deviceParts } from '../../qemu/device-parts.ts'
import { plugCommand, type QmpCommand, removeCommand } from '../../qemu/parts.ts'
import type { PartsHost } from '../../qemu/parts-host.ts'
import { addPart } from '../../qemu/qmp/add-part.ts'
import { vsockStarts } from '../../qemu/vsock/driver-ready.ts'
import { checkCanBeKept, checkPrivateMemory } from '../../spec/check-spec.ts'
import { pathOf } from '../../spec/component-path.ts'
import { backendFromProto, specFromProto } from '../../spec/from-proto.ts'
import { chipsetOf, type Device, type NetworkDisk, secretOfDisk, type VmSpec } from '../../spec/spec.ts'
import { nodeNames, qemuId, type SpecKey, specKey } from '../../spec/spec-key.ts'
import { machinesOf, runningSpec } from '../documents/document-record.ts'
import { recordedText, toldTo } from '../documents/hidden-files.ts'
import {
  backendsBehind,
  type PlannedDevice,
  plannedFeatures,
  plannedVsock,
  runningParts,
  withoutDesired,
  withoutPresent,
  withPresent,
} from '../documents/plug-features.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller } from '../instances.ts'
import { refuseUnfencedFor } from '../leases/check-lease.ts'
import { checkBackendFile, checkSteps } from '../machine/check-files.ts'
import type { Machine } from '../machine/machine.ts'
import { makeSteps, undoSteps } from '../machine/steps.ts'
import { refuseLayered } from '../snapshots/layers.ts'
import { closeUnused } from './descriptor-sets.ts'
import { refuseBases, refuseOthersBases, refuseServed, servedDisks } from './disk-in-use.ts'
import { isHeld } from './held-cpu.ts'
import { openerOf, partsHostOf } from './parts-host-of.ts'
import type { PlugParts } from './plug-parts.ts'
import { type Providers, providerSteps, providersOf, toRecord, writingDaemons } from './provider-steps.ts'
import { secretValue } from './secret-value.ts'
import { isEqualBackend, isEqualDevice, withDevice } from './specification.ts'

/**
 * Adds a device to the machine, and starts the daemon of its backend before. The record has both before they are made.
 * `chooseCid` returns a context id that no instance has. To be called in a change.
 */
export async function plug(
  instance: MachineInstance,
  request: PlugRequest,
  { chooseCid, machines, starting }: PlugParts,
  caller: Pick<Caller, 'tenant'> = { tenant: undefined },
): Promise<void> {
  const { recorded } = instance
  const isOfDocument = recorded.record.document !== undefined
  if (isOfDocument) instance.machine()
  if (isOfDocument && request.features === undefined)
    throw new AgentError('INVALID_ARGUMENT', 'device: the instance was made of a document, want features')
  const planned = await (request.features === undefined
    ? plannedDevice(instance, request, chooseCid)
    : plannedFeatures(instance, request, machines)
  ).catch(toldTo(caller, instance))
  if (planned === undefined) return
  const told = toldTo(caller, instance, planned.planned)
  await plugPlanned(instance, request.deviceKey, { planned, starting }).catch(told)
}

/** Plugs in again a device that has left for a while, if it is not there. To be called in a change. */
export async function plugBack(
  instance: MachineInstance,
  request: PlugRequest,
  { chooseCid, starting }: PlugParts,
): Promise<void> {
  const isOfDocument = instance.record.document !== undefined
  // Which checks the context id.
  const back = isOfDocument ? plannedVsock(instance, request) : undefined
  if (back !== undefined) await reserveCid(instance, request.device?.vsock?.cid ?? 0, chooseCid)
  const planned = isOfDocument ? back : await plannedDevice(instance, request, chooseCid)
  if (planned !== undefined) await plugPlanned(instance, request.deviceKey, { planned, starting })
}

async function plugPlanned(
  instance: MachineInstance,
  deviceKey: string,
  { planned, starting }: Pick<PlugParts, 'starting'> & { readonly planned: PlannedDevice },
): Promise<void> {
  const { recorded, context } = instance
  const { backend, set, done, specification } = planned
  const own = specification.backends[backend]
  if (own !== undefined) {
    await checkBackendFile(backend, own)
    refuseUnfencedFor(recorded.record, { [backend]: backendFromProto(backend, own) })
    if (recorded.record.privateMemory !== '')
      checkPrivateMemory({ [specKey(backend)]: backendFromProto(backend, own) })
    refuseBases({ [backend]: own }, recorded.record.layers, `instance ${instance.key}`)
  }
  const providers = await providersOf(instance, planned.planned, backend)
  await checkSteps(context, [...providers.filters, ...providers.taps])
  const served = servedDisks(planned.done.document)[backend]
  const secretValues = await secretValueOf(backend, { ...own, served }, providers)
  const work = hotPlug(instance, { ...planned, key: specKey(deviceKey), providers, secretValues })
  const step = recorded.step('plug', [deviceKey])
  const steps = toRecord(instance, [...providers.daemons, ...providers.filters, ...providers.taps])
  const text = `device ${deviceKey}`
  if (own !== undefined) refuseOthersBases({ [backend]: own }, instance)
  if (served !== undefined) refuseUnfencedFor(recorded.record, { [backend]: served })
  if (served !== undefined) refuseServed(planned.done.document, instance, starting)
  await recorded.commit({ set, add: [step, ...steps], kind: 'device', text: `${text} is plugged in` })
  try {
    await work(instance.machine())
  } catch (error) {
    const undone = await undoSteps(context, steps)
    await recorded.note({
      set: withoutPresent(recorded.record, [deviceKey]),
      drop: [step, ...undone],
      kind: 'device',
      text: `${text} was not plugged in: ${recordedText(error, instance, planned.planned)}`,
      frees: true,
    })
    throw error
  }
  if (own?.vsockDaemon !== undefined)
    void vsockStarts({ qmp: instance.machine().qmp, id: qemuId(specKey(deviceKey)), ending: instance.ending })
  await recorded.note({ set: done, drop: [step], kind: 'device', text: `${text} is present` })
}

/** Undefined for one that is there already. */
async function plannedDevice(
  instance: MachineInstance,
  { backend, device, deviceKey }: PlugRequest,
  chooseCid: (wanted: number) => number,
): Promise<PlannedDevice | undefined> {
  const specification = specificationOf(instance)
  if (device === undefined) throw new AgentError('INVALID_ARGUMENT', 'device: missing')
  const present = specification.devices[deviceKey]
  if (present !== undefined) {
    const presentBackend = backend === undefined ? undefined : specification.backends[present.backend]
    if (isEqualDevice(present, device) && isEqualBackend(presentBackend, backend)) return undefined
    throw new AgentError('ALREADY_EXISTS', `instance ${instance.key}: device ${deviceKey}: already plugged`)
  }
  instance.machine()
  if (backend !== undefined) await checkBackendFile(device.backend, backend)
  const next = withDevice(specification, deviceKey, { device, backend })
  const spec = checkHotPlug(next, specKey(deviceKey))
  if (device.vsock !== undefined) await reserveCid(instance, device.vsock.cid, chooseCid)
  const set = { specification: next }
  return {
    ...{ spec, specification: next, backend: device.backend, set, done: {}, planned: set },
    partsFor: (host) => deviceParts(spec, specKey(deviceKey), host),
  }
}

/**
 * Asks the guest to let a device go, and waits for at most `graceMs`. Then the device is leaving, for the request cannot be
 * taken back. To be called in a change.
 */
export async function unplug(instance: MachineInstance, request: UnplugRequest): Promise<void> {
  const { recorded, context } = instance
  const { deviceKey } = request
  const specification = specificationOf(instance)
  const { devices } = machinesOf(recorded.record)?.current ?? specification
  if (devices[deviceKey] === undefined) return
  const { qmp } = instance.machine()
  refuseWithoutBus(specification)
  refuseLayered(recorded.record, specification.devices[deviceKey]?.backend ?? '')
  const { document, leaving, leavingMs } = recorded.record
  const isFirst = !leaving.includes(deviceKey)
  if (isFirst) {
    const set = {
      ...withoutDesired(recorded.record, [deviceKey]),
      leaving: [...leaving, deviceKey],
      leavingMs: { ...leavingMs, [deviceKey]: BigInt(Date.now()) },
    }
    await recorded.commit({ set, kind: 'device', text: `device ${deviceKey} is to leave` })
  }
  if (await isHeld(instance, deviceKey)) return
  const id = qemuId(specKey(deviceKey))
  const grace = AbortSignal.timeout(request.graceMs === 0 ? context.limits.unplugMs : request.graceMs)
  const gone = qmp.event(
    ({ name, data }) => name === 'DEVICE_DELETED' && data.device === id,
    AbortSignal.any([grace, instance.ending]),
  )
  const isGone = gone.then(
    () => true,
    () => false,
  )
  let isAsked = false
  try {
    await askToLeave(instance, deviceKey)
    isAsked = true
  } catch (error) {
    // The guest may have been asked before, or the device may be gone already.
    if (isFirst && (await devicesOf(instance)).includes(id)) {
      const set = { document, leaving, leavingMs }
      await recorded.commit({ set, kind: 'device', text: `device ${deviceKey} stays` })
      throw new AgentError('FAILED_PRECONDITION', `device ${deviceKey}: ${messageOf(error)}`, {
        cause: error,
      })
    }
  }
  // QEMU lets go of a disk's nodes only when it tells that the device is gone, which it does not list before that any more.
  const isAbsent = !isAsked && !(await devicesOf(instance)).includes(id)
  if (isAbsent || (await isGone)) await finishUnplug(instance)
}

async function askToLeave(instance: MachineInstance, deviceKey: string): Promise<void> {
  await undoSteps(instance.context, writingDaemons(instance, deviceKey))
  const id = qemuId(specKey(deviceKey))
  await instance.machine().qmp.execute('device_del', { id }, instance.ending)
}

/** Removes from the record what has left the machine. To be called in a change. */
export async function finishUnplug(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  const { leaving } = recorded.record
  if (leaving.length === 0 || instance.context.machine === undefined) return
  const present = await devicesOf(instance)
  const gone = leaving.filter((key) => !present.includes(qemuId(specKey(key))))
  if (gone.length === 0) return
  await removeBackends(instance, gone)
  const backends = backendsBehind(recorded.record, gone)
  const drop = await undoSteps(instance.context, providerSteps(instance, backends))
  const left = leaving.filter((key) => !gone.includes(key))
  const set = { ...withoutPresent(recorded.record, gone), leaving: left }
  await recorded.note({ set, drop, kind: 'device', text: `device ${gone.join(', ')} has left` })
}

/** Finishes what an earlier daemon has begun. To be called in a change. */
export async function settlePlugs(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  const present = await devicesOf(instance)
  for (const step of recorded.steps.filter((each) => each.step === 'plug')) {
    const [key = ''] = step.words
    const set = withPresent(recorded.record, key)
    if (present.includes(qemuId(specKey(key)))) {
      await recorded.commit({ set, drop: [step], kind: 'device', text: `device ${key} is present` })
    } else {
      await removeBackends(instance, [key], { ...recorded.record, ...set })
      const steps = providerSteps(instance, backendsBehind(recorded.record, [key]))
      const undone = await undoSteps(instance.context, steps)
      await recorded.commit({
        set: withoutPresent(recorded.record, [key]),
        drop: [step, ...undone],
        kind: 'device',
        text: `device ${key} was not plugged in`,
      })
    }
  }
  for (const key of recorded.record.leaving) {
    // The daemon may have died before it asked the guest.
    if (!(await isHeld(instance, key))) await askToLeave(instance, key).catch(() => {})
  }
  await finishUnplug(instance)
}

export function specificationOf({ key, record }: MachineInstance): Specification {
  if (record.specification !== undefined) return record.specification
  throw new AgentError('FAILED_PRECONDITION', `instance ${key}: its specification is not known yet`)
}

/** QEMU's ids of the devices that have one. */
export async function devicesOf(instance: MachineInstance): Promise<readonly string[]> {
  const { qmp } = instance.machine()
  const children = await qmp.execute('qom-list', { path: '/machine/peripheral' }, instance.ending)
  return children.map(({ name }) => name)
}

/** Removes what QEMU has behind devices that are not there. What is missing or still in use stays as it is. */
async function removeBackends(
  instance: MachineInstance,
  keys: readonly string[],
  record = instance.record,
): Promise<void> {
  const spec = record.document === undefined ? specFromProto(specificationOf(instance)) : undefined
  const running = spec ?? runningSpec(record)
  for (const key of keys) {
    const [backend] = backendsBehind(record, [key])
    if (backend === undefined) continue
    const host = partsHostOf(instance, running)
    const parts = spec === undefined ? runningParts(record, key, host) : deviceParts(spec, specKey(key), host)
    const commands = parts.toReversed().flatMap((part) => removeCommand(part) ?? [])
    // The file of a disk that was replaced may be this node.
    const other = {
      execute: 'blockdev-del',
      arguments: { 'node-name': nodeNames(specKey(backend)).otherFile },
    }
    for (const command of [...commands, ...(running.devices[specKey(key)]?.kind === 'disk' ? [other] : [])])
      await instance
        .machine()
        .qmp.command(command, instance.ending)
        .catch(() => {})
  }
  if (instance.context.isWalled) await closeUnused(instance.machine().qmp, instance.ending).catch(() => {})
}

function refuseWithoutBus({ board }: Specification): void {
  if (board?.machine === 'microvm')
    throw new AgentError('UNIMPLEMENTED', 'machine microvm has no bus into which a device can be plugged')
}

/** Checks the specification with the new device, and that the machine has a place for it. */
function checkHotPlug(next: Specification, key: SpecKey): VmSpec {
  refuseWithoutBus(next)
  const spec = specFromProto(next)
  checkCanBeKept(spec)
  refuseFirstBus(spec, spec.devices[key])
  return spec
}

/** The context id stays the instance's when the device leaves. */
export async function reserveCid(
  { record, recorded }: MachineInstance,
  wanted: number,
  chooseCid: (wanted: number) => number,
): Promise<void> {
  if (record.cid !== 0 && (wanted === 0 || wanted === record.cid)) return
  const cid = chooseCid(wanted)
  await recorded.commit({ set: { cid }, kind: 'device', text: `context id ${cid} is the instance's` })
}

/** What opens the disk of the backend, in base64. The daemon of a server's disk gets it by a descriptor. */
async function secretValueOf(
  key: string,
  { file, served }: Partial<Backend> & { readonly served: NetworkDisk | undefined },
  { secrets }: Providers,
): Promise<ReadonlyMap<string, string>> {
  const uuid = file?.encryption?.secret ?? (served && secretOfDisk(served))
  if (uuid === undefined) return new Map()
  const fields = served === undefined ? ['file', 'encryption', 'secret'] : ['secret']
  return new Map([[uuid, await secretValue(pathOf('backends', key, ...fields), uuid, secrets.get(uuid))]])
}

interface HotPlug extends Pick<PlannedDevice, 'spec' | 'partsFor'>, Pick<PartsHost, 'secretValues'> {
  readonly key: SpecKey
  readonly providers: Providers
}

/** Returns what plugs the device in. */
function hotPlug(
  instance: MachineInstance,
  { spec, key, partsFor, providers, secretValues }: HotPlug,
): (machine: Machine) => Promise<void> {
  const { context, record } = instance
  const device = spec.devices[key]
  const opener = openerOf(instance)
  const host = partsHostOf(instance, spec, { opener, planned: providers.daemons, secretValues })
  const parts = partsFor(host)
  const commands = parts.map((part) => ({
    add: plugCommand(part),
    remove: removeCommand(part),
    before: part.option === 'device' ? providers.filters : [],
  }))
  return async ({ qmp }) => {
    const undo: QmpCommand[] = []
    try {
      await makeSteps(context, providers.daemons, record)
      await opener?.open(qmp, instance.ending)
      for (const { add, remove, before } of commands) {
        await makeSteps(context, before, record)
        await addPart(qmp, add, instance.ending)
        if (remove !== undefined) undo.unshift(remove)
      }
      await makeSteps(context, providers.taps, record)
    } catch (error) {
      const backend = device !== undefined && 'backend' in device ? spec.backends[device.backend] : undefined
      const path = backend?.kind === 'file' ? backend.path : undefined
      await undoAndThrow(refused(`device ${key}`, instance.explain(error, path)), async (limit) => {
        // The others still go when one stays, such as a node that a daemon has not let go.
        for (const command of undo) await qmp.command(command, limit).catch(() => {})
        await opener?.discard(qmp, limit)
      })
    }
  }
}

/** The error of a caller when QEMU refuses what a specification says, such as a file that is not there. */
export function refused(what: string, error: unknown): unknown {
  if (!(error instanceof AgentError) || error.code !== 'INTERNAL') return error
  return new AgentError('FAILED_PRECONDITION', `${what}: ${error.message}`, { cause: error })
}

function refuseFirstBus({ board }: VmSpec, device: Device | undefined): void {
  const isPlaced = device !== undefined && 'port' in device && device.port !== undefined
  if (isPlaced || chipsetOf(board.machine) !== 'q35') return
  throw new AgentError(
    'FAILED_PRECONDITION',
    'the first bus of q35 takes no device while the machine runs, want a root port',
  )
}
