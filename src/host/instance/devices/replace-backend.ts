import { AgentError, messageOf } from '../../../base/errors.ts'
import { type Backend, File_Access, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { checkCanBeKept } from '../../spec/check-spec.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import type { MachineInstance } from '../instance.ts'
import { checkBackendFile } from '../machine/check-files.ts'
import { checkSteps, makeSteps, undoSteps } from '../machine/steps.ts'
import { refuseLayered } from '../snapshots/layers.ts'
import { refuseBases, refuseOthersBases } from './disk-in-use.ts'
import { openerOf } from './parts-host-of.ts'
import { specificationOf } from './plug.ts'
import { connectTap, otherSteps, providersOf, toRecord } from './provider-steps.ts'
import { hasFile, replaceFile } from './replace-file.ts'
import { isReplaceable, replaceNetwork, restoreNetwork } from './replace-network.ts'
import { isEqualBackend } from './specification.ts'

/** Provides a device from elsewhere. The guest goes on, and may use the device meanwhile. To be called in a change. */
export async function replaceBackend(
  instance: MachineInstance,
  key: string,
  backend: Backend,
): Promise<void> {
  const { recorded, context } = instance
  if (recorded.record.document !== undefined)
    throw new AgentError(
      'UNIMPLEMENTED',
      `instance ${instance.key}: was made of a document, whose backends are looked up in the catalogue at each start`,
    )
  const before = specificationOf(instance)
  const present = before.backends[key]
  if (present === undefined)
    throw new AgentError('NOT_FOUND', `instance ${instance.key}: backend ${key}: not found`)
  if (isEqualBackend(present, backend)) return
  const after = { ...before, backends: { ...before.backends, [key]: backend } }
  checkCanBeKept(specFromProto(after))
  await checkBackendFile(key, backend)
  refuseLayered(recorded.record, key)
  refuseBases({ [key]: backend }, recorded.record.layers, `instance ${instance.key}`)
  const done = { set: { specification: after }, kind: 'backend' } as const
  const text = `backend ${key} was replaced`
  refuseOthersBases({ [key]: backend }, instance)
  if (context.machine === undefined) return await recorded.commit({ ...done, text })
  const work = replacement(key, before, after)
  const providers = await providersOf(instance, { specification: after }, key)
  const { daemons, filters, taps } = providers
  if (backend.tap?.interfaceName !== present.tap?.interfaceName)
    await checkSteps(context, [...filters, ...taps])
  const step = recorded.step('replace', [key, present.file?.path ?? '', backend.file?.path ?? ''])
  const added = toRecord(instance, daemons)
  refuseOthersBases({ [key]: backend }, instance)
  await recorded.commit({ add: [step, ...added], kind: 'backend', text: `backend ${key} is being replaced` })
  let told: string
  try {
    await makeSteps(context, daemons, recorded.record)
    told = await work(instance)
  } catch (failure) {
    const error = instance.explain(failure, backend.file?.path)
    const undone = await undoSteps(context, added)
    const reason = messageOf(error)
    await recorded.note({ drop: [step, ...undone], kind: 'backend', text: `backend ${key} stays: ${reason}` })
    throw error
  }
  const ended = await undoSteps(context, otherSteps(instance, key, providers))
  const add = toRecord(instance, [...filters, ...taps])
  await recorded.note({ ...done, add, drop: [step, ...ended], text: `${text}${told}` })
}

/**
 * Finishes what an earlier daemon has begun: QEMU says which file a disk has, and a network becomes again what the record
 * says. To be called in a change.
 */
export async function settleReplacements(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  for (const step of recorded.steps.filter((each) => each.step === 'replace')) {
    const [key = '', , path = ''] = step.words
    const before = specificationOf(instance)
    const file = before.backends[key]?.file
    const isDone = file !== undefined && (await hasFile(instance, key, path))
    const undone = file === undefined ? await settleNetwork(instance, key, before) : []
    const backends = { ...before.backends, [key]: { file: { ...file, path } } }
    const set = isDone ? { specification: { ...before, backends } as Specification } : {}
    const text = `backend ${key} ${isDone ? 'was replaced' : 'stays'}`
    await recorded.commit({ set, drop: [step, ...undone], kind: 'backend', text })
  }
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
  const providers = await providersOf(instance, { specification }, key)
  return await undoSteps(context, otherSteps(instance, key, providers))
}

/** What replaces a backend of a machine; it returns what is to be told besides. */
type Replacement = (instance: MachineInstance) => Promise<string>

function replacement(key: string, before: Specification, after: Specification): Replacement {
  const [present, next] = [before.backends[key], after.backends[key]]
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
      return (instance) => {
        const isReadOnly = access === File_Access.READ_ONLY
        return replaceFile(instance, key, { path, isReadOnly, opener: openerOf(instance) })
      }
    throw new AgentError(
      'UNIMPLEMENTED',
      `backend ${key}: what the guest wrote to a scratch disk is in no file that another could replace`,
    )
  }
  const isNetwork = next?.tap !== undefined || next?.passt !== undefined
  if (next?.tap !== undefined && present?.tap?.interfaceName === next.tap.interfaceName)
    return async (instance) => {
      await connectTap(instance, after, key)
      return ''
    }
  if (isNetwork && isReplaceable(key, before))
    return async (instance) => {
      await replaceNetwork(instance, key, { before, after })
      return ''
    }
  throw new AgentError('UNIMPLEMENTED', `backend ${key}: ${refusal(present)}`)
}

function refusal(present: Backend | undefined): string {
  return present?.tap === undefined && present?.passt === undefined
    ? 'only the file of a disk and the network of a NIC can be replaced'
    : 'another netdev below a realized NIC does not exist in QEMU 7.2; a replaceable NIC takes another tap or passt'
}
