import { AgentError, messageOf } from '../../../base/errors.ts'
import {
  type Backend,
  type File,
  File_Access,
  type ReplaceBackendRequest,
  type Specification,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { deviceParts } from '../../qemu/device-parts.ts'
import type { Part } from '../../qemu/parts.ts'
import { checkCanBeKept } from '../../spec/check-spec.ts'
import { backendFromProto, specFromProto } from '../../spec/from-proto.ts'
import { specKey } from '../../spec/spec-key.ts'
import { runningSpec } from '../documents/document-record.ts'
import { recordedText, toldTo } from '../documents/hidden-files.ts'
import { runningParts } from '../documents/plug-features.ts'
import { plannedSource, type ReplacedSource, withReplaced } from '../documents/replace-source.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller } from '../instances.ts'
import { refuseUnfencedFor } from '../leases/check-lease.ts'
import { checkBackendFile, checkSteps } from '../machine/check-files.ts'
import { makeSteps, type PlannedStep, undoSteps } from '../machine/steps.ts'
import { refuseLayered } from '../snapshots/layers.ts'
import { refuseBases, refuseOthersBases } from './disk-in-use.ts'
import { openerOf, partsHostOf } from './parts-host-of.ts'
import { specificationOf } from './plug.ts'
import { connectTap, otherSteps, providersOf, toRecord } from './provider-steps.ts'
import { hasFile, replaceFile } from './replace-file.ts'
import { isReplaceable, replaceNetwork, restoreNetwork } from './replace-network.ts'
import type { RunningOpener } from './running-opener.ts'
import { isEqualBackend } from './specification.ts'

/** A backend before it is replaced. */
interface PlannedBackend {
  readonly before: Specification
  readonly after: Specification
  /** What the record has once it is replaced. */
  readonly set: Partial<InstanceRecord>
  /** Of the step, besides the paths: what an instance that was made of a document has then. */
  readonly source?: ReplacedSource
}

/**
 * Provides a device from elsewhere: by another backend, or by another name of the catalogue. The guest goes on, and may use the
 * device meanwhile. To be called in a change.
 */
export async function replaceBackend(
  instance: MachineInstance,
  request: Omit<ReplaceBackendRequest, 'key'>,
  caller: Pick<Caller, 'tenant'>,
): Promise<void> {
  const key = specKey(request.backendKey)
  const planned = await plannedBackend(instance, { ...request, backendKey: key }).catch(
    toldTo(caller, instance),
  )
  if (planned === undefined) return
  const { before, set } = planned
  await replacePlanned(instance, key, planned).catch(
    toldTo(caller, instance, { specification: before, ...set }),
  )
}

async function replacePlanned(
  instance: MachineInstance,
  key: string,
  planned: PlannedBackend,
): Promise<void> {
  const { recorded, context } = instance
  const { after, before, set, source } = planned
  const [present, backend] = [before.backends[key], after.backends[key]]
  const next = backend === undefined ? {} : { [key]: backend }
  if (backend !== undefined) await checkBackendFile(key, backend)
  refuseLayered(recorded.record, key)
  refuseBases(next, recorded.record.layers, `instance ${instance.key}`)
  const done = { set, kind: 'backend' } as const
  const text = `backend ${key} was replaced`
  refuseOthersBases(next, instance)
  if (context.machine === undefined) return await recorded.commit({ ...done, text })
  if (backend !== undefined) refuseUnfencedFor(recorded.record, { [key]: backendFromProto(key, backend) })
  const work = replacement(instance, key, planned)
  const providers = await providersOf(instance, set, key)
  const { daemons, filters, taps } = providers
  if (backend?.tap?.interfaceName !== present?.tap?.interfaceName)
    await checkSteps(context, [...filters, ...taps])
  const paths = [present, backend].map((each) => each?.file?.path ?? '')
  const step = recorded.step('replace', [key, ...paths, ...(source ? [JSON.stringify(source)] : [])])
  const added = toRecord(instance, daemons)
  refuseOthersBases(next, instance)
  await recorded.commit({ add: [step, ...added], kind: 'backend', text: `backend ${key} is being replaced` })
  let told: string
  try {
    await makeSteps(context, daemons, recorded.record)
    told = await work()
  } catch (failure) {
    const error = instance.explain(failure, backend?.file?.path)
    const undone = await undoSteps(context, added)
    const reason = recordedText(error, instance, set)
    await recorded.note({ drop: [step, ...undone], kind: 'backend', text: `backend ${key} stays: ${reason}` })
    throw error
  }
  const ended = await undoSteps(context, otherSteps(instance, key, providers))
  const add = toRecord(instance, [...filters, ...taps])
  await recorded.note({ ...done, add, drop: [step, ...ended], text: `${text}${told}` })
  await makeSteps(context, limitsIn(taps), recorded.record)
}

/** Undefined for a backend that is the present one. */
async function plannedBackend(
  instance: MachineInstance,
  { backend, backendKey: key, source }: Omit<ReplaceBackendRequest, 'key'>,
): Promise<PlannedBackend | undefined> {
  const { plugParts, record } = instance
  const before = specificationOf(instance)
  if (source !== undefined) {
    const replaced = await plannedSource(instance, { backendKey: key, source }, plugParts.machines)
    if (replaced === undefined) return undefined
    const set = withReplaced(record, key, replaced)
    return { before, after: set.specification, set, source: replaced }
  }
  if (record.document !== undefined)
    throw new AgentError('INVALID_ARGUMENT', 'backend: the instance was made of a document, want source')
  if (backend === undefined) throw new AgentError('INVALID_ARGUMENT', 'backend: missing')
  const present = before.backends[key]
  if (present === undefined)
    throw new AgentError('NOT_FOUND', `instance ${instance.key}: backend ${key}: not found`)
  if (isEqualBackend(present, backend)) return undefined
  const after = { ...before, backends: { ...before.backends, [key]: backend } }
  checkCanBeKept(specFromProto(after))
  return { before, after, set: { specification: after } }
}

/**
 * Finishes what an earlier daemon has begun: QEMU says which file a disk has, and a network becomes again what the record
 * says. To be called in a change.
 */
export async function settleReplacements(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  for (const step of recorded.steps.filter((each) => each.step === 'replace')) {
    const [key = '', , path = '', source] = step.words
    const before = specificationOf(instance)
    const file = before.backends[key]?.file
    const isDone = file !== undefined && (await hasFile(instance, key, path))
    const undone = file === undefined ? await settleNetwork(instance, key, before) : []
    const set = isDone ? withFile(recorded.record, key, { file: { ...file, path }, source }) : {}
    const add = isDone ? toRecord(instance, limitsIn((await providersOf(instance, set, key)).taps)) : []
    const text = `backend ${key} ${isDone ? 'was replaced' : 'stays'}`
    await recorded.commit({ set, add, drop: [step, ...undone], kind: 'backend', text })
  }
}

function withFile(
  record: Readonly<InstanceRecord>,
  key: string,
  { file, source }: { readonly file: File; readonly source: string | undefined },
): Partial<InstanceRecord> {
  if (source !== undefined) return withReplaced(record, key, JSON.parse(source))
  const { specification } = record
  if (specification === undefined) return {}
  return { specification: { ...specification, backends: { ...specification.backends, [key]: { file } } } }
}

function limitsIn(taps: readonly PlannedStep[]): readonly PlannedStep[] {
  return taps.filter(({ step }) => step === 'throttle')
}

/** Returns the steps of the other network, which are undone. A network that cannot be restored is dead. */
async function settleNetwork(
  instance: MachineInstance,
  key: string,
  specification: Specification,
): Promise<readonly StepRecord[]> {
  const { context } = instance
  await restoreNetwork(instance, key, specification).catch((error) =>
    context.log.warn('network not restored', { backend: key, error: messageOf(error) }),
  )
  const providers = await providersOf(instance, {}, key)
  return await undoSteps(context, otherSteps(instance, key, providers))
}

/** Returns what replaces the backend of a machine that runs, and tells what is to be told besides. */
function replacement(
  instance: MachineInstance,
  key: string,
  { after, before, set, source }: PlannedBackend,
): () => Promise<string> {
  const [present, next] = [before.backends[key], after.backends[key]]
  const nothing = async () => ''
  if (isEqualBackend(present, next)) return nothing
  if (present?.file !== undefined && next?.file !== undefined) {
    const { path, access } = next.file
    if (present.file.encryption !== undefined || next.file.encryption !== undefined)
      throw new AgentError(
        'UNIMPLEMENTED',
        `backends.${key}.file.encryption: the file of an encrypted disk can be replaced only while the machine is stopped`,
      )
    if (access !== present.file.access)
      throw new AgentError(
        'INVALID_ARGUMENT',
        `backends.${key}.file.access: differs from what the guest has seen`,
      )
    if (access !== File_Access.SCRATCH)
      return async () => {
        const opener = openerOf(instance)
        const nodes = blockParts(instance, key, { after, set, opener })
        return await replaceFile(instance, key, { path, nodes, opener })
      }
    throw new AgentError(
      'UNIMPLEMENTED',
      `backend ${key}: what the guest wrote to a scratch disk is in no file that another could replace`,
    )
  }
  const isNetwork = next?.tap !== undefined || next?.passt !== undefined
  if (next?.tap !== undefined && present?.tap?.interfaceName === next.tap.interfaceName)
    return async () => {
      await connectTap(instance, set, key)
      return ''
    }
  if (isNetwork && isReplaceable(key, before))
    return async () => {
      await replaceNetwork(instance, key, { before, after, set })
      return ''
    }
  throw new AgentError('UNIMPLEMENTED', `backend ${key}: ${refusal(present, source !== undefined)}`)
}

/** The block nodes of a disk, as a start makes them. */
function blockParts(
  instance: MachineInstance,
  key: string,
  {
    after,
    set,
    opener,
  }: Pick<PlannedBackend, 'after' | 'set'> & { readonly opener: RunningOpener | undefined },
): readonly Part[] {
  const running = set.document && { ...instance.record, ...set }
  const spec = running ? runningSpec(running) : specFromProto(after)
  const host = partsHostOf(instance, spec, { opener })
  const device = specKey(
    Object.keys(after.devices).find((each) => after.devices[each]?.backend === key) ?? '',
  )
  const parts = running ? runningParts(running, device, host) : deviceParts(spec, device, host)
  return parts.filter(({ option }) => option === 'blockdev')
}

function refusal(present: Backend | undefined, isOfDocument: boolean): string {
  if (present?.tap === undefined && present?.passt === undefined)
    return 'only the file of a disk and the network of a NIC can be replaced'
  const wanted = isOfDocument
    ? 'want a bridge in place of a bridge, or the machine stopped'
    : 'a replaceable NIC takes another tap or passt'
  return `another netdev below a realized NIC does not exist in QEMU 7.2; ${wanted}`
}
