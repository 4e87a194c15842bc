import { AgentError, messageOf } from '../../../base/errors.ts'
import { type Backend, File_Access, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import { checkCanBeKept } from '../../spec/check-spec.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import type { MachineInstance } from '../instance.ts'
import { checkBackendFile } from '../machine/check-files.ts'
import { openerOf } from './parts-host-of.ts'
import { specificationOf } from './plug.ts'
import { hasFile, replaceFile } from './replace-file.ts'
import { connectTap, replaceNetwork } from './replace-network.ts'
import { isEqualBackend } from './specification.ts'

/** Provides a device from elsewhere. The guest goes on, and may use the device meanwhile. To be called in a change. */
export async function replaceBackend(
  instance: MachineInstance,
  key: string,
  backend: Backend,
): Promise<void> {
  const { recorded, context } = instance
  const before = specificationOf(instance)
  const present = before.backends[key]
  if (present === undefined)
    throw new AgentError('NOT_FOUND', `instance ${instance.key}: backend ${key}: not found`)
  if (isEqualBackend(present, backend)) return
  const after = { ...before, backends: { ...before.backends, [key]: backend } }
  checkCanBeKept(specFromProto(after))
  await checkBackendFile(key, backend)
  const done = { set: { specification: after }, kind: 'backend' } as const
  const text = `backend ${key} was replaced`
  if (context.machine === undefined) return await recorded.commit({ ...done, text })
  const work = replacement(key, before, after)
  const step = recorded.step('replace', [key, present.file?.path ?? '', backend.file?.path ?? ''])
  await recorded.commit({ add: [step], kind: 'backend', text: `backend ${key} is being replaced` })
  let told: string
  try {
    told = await work(instance)
  } catch (failure) {
    const error = instance.explain(failure, backend.file?.path)
    await recorded.note({ drop: [step], kind: 'backend', text: `backend ${key} stays: ${messageOf(error)}` })
    throw error
  }
  const add = tapSteps(instance, key, backend)
  await recorded.note({ ...done, add, drop: [step], text: `${text}${told}` })
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
    if (file === undefined) await restoreNetwork(instance, key, before)
    const backends = { ...before.backends, [key]: { file: { ...file, path } } }
    const set = isDone ? { specification: { ...before, backends } as Specification } : {}
    const text = `backend ${key} ${isDone ? 'was replaced' : 'stays'}`
    await recorded.commit({ set, drop: [step], kind: 'backend', text })
  }
}

async function restoreNetwork(
  instance: MachineInstance,
  key: string,
  specification: Specification,
): Promise<void> {
  const { tap } = specification.backends[key] ?? {}
  if (isReplaceable(key, specification))
    await replaceNetwork(instance, key, { before: specification, after: specification })
  else if (tap !== undefined) await connectTap(instance, tap)
}

/** What replaces a backend of a machine; it returns what is to be told besides. */
type Replacement = (instance: MachineInstance) => Promise<string>

function replacement(key: string, before: Specification, after: Specification): Replacement {
  const [present, next] = [before.backends[key], after.backends[key]]
  if (present?.file !== undefined && next?.file !== undefined) {
    const { path, access } = next.file
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
  const { tap } = next ?? {}
  if (tap !== undefined && present?.tap?.interfaceName === tap.interfaceName)
    return (instance) => connectTap(instance, tap)
  if (tap !== undefined && isReplaceable(key, before))
    return (instance) => replaceNetwork(instance, key, { before, after })
  throw new AgentError('UNIMPLEMENTED', `backend ${key}: ${refusal(present)}`)
}

function refusal(present: Backend | undefined): string {
  return present?.tap === undefined && present?.passt === undefined
    ? 'only the file of a disk and the network of a NIC can be replaced'
    : 'another netdev below a realized NIC does not exist in QEMU 7.2; a replaceable NIC takes another tap'
}

export function isReplaceable(key: string, { devices }: Specification): boolean {
  return Object.values(devices).some(({ backend, nic }) => backend === key && nic?.replaceable === true)
}

/** The next daemon connects the tap again, by this step. */
function tapSteps({ recorded }: MachineInstance, key: string, { tap }: Backend) {
  return tap === undefined ? [] : [recorded.step('tap', [key, tap.interfaceName, tap.bridge])]
}
