import { randomBytes } from 'node:crypto'
import { ResumedRequest } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import { SavedInit, State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { Caller } from '../../instance/instances.ts'
import { RUNS } from '../../instance/machine/steps.ts'
import type { KeptContent } from '../../instance/moves.ts'
import { settleRevert as takeBack } from '../../instance/snapshots/revert.ts'
import type { AtStep } from '../faults.ts'
import { type Manifest, readManifest } from '../manifest.ts'
import { commitResume, openSaved, RUNS_WORD, settleRepair, startOf } from '../resume.ts'
import type { SavingParts } from './suspend.ts'

/** Checks a kept memory whole, before anything starts. */
export async function openKept(parts: SavingParts): Promise<Omit<KeptContent, 'timeline'>> {
  const { manifest, record, start } = await openSaved(SavedInit.create(), parts)
  return { record, start, folder: parts.folder, id: manifest.id }
}

/** Starts the stopped instance from a memory, and tells its guest. When the guest is not ready in time, it runs all the same. */
export async function revert(
  instance: MachineInstance,
  { folder }: KeptContent,
  { atStep, caller }: { readonly atStep: AtStep; readonly caller: Pick<Caller, 'inStep'> },
): Promise<void> {
  const manifest = await readManifest(folder)
  caller.inStep('loading the memory of the snapshot')
  const desired = manifest.state === 'running' ? State.RUNNING : State.PAUSED
  const saved = startOf(instance, { folder, manifest, atStep }, 'revert')
  await instance.start({ isNew: false, desired, saved })
  await atStep('import', 'commit')
  await commitResume(instance, requestOf(manifest))
  await atStep('import', 'repair')
  caller.inStep('waiting until the guest is ready')
  await settleRepair(instance)
}

function requestOf({ hasAgent, id }: Manifest): ResumedRequest | undefined {
  if (!hasAgent) return undefined
  return ResumedRequest.fromPartial({
    generation: `${id}/${randomBytes(8).toString('hex')}`,
    seed: randomBytes(64),
  })
}

/** Decides what becomes of a revert that another daemon has begun. Returns whether the instance is stopped, as before it. */
export async function settleRevert(instance: MachineInstance, { words }: StepRecord): Promise<boolean> {
  const { machine } = instance.context
  const hasRun =
    words[RUNS_WORD] === RUNS ||
    (machine !== undefined && (await machine.qmp.execute('query-status', {}, instance.ending)).running)
  if (!hasRun) {
    if (instance.record.current !== State.STOPPED) await instance.tearDown('')
    await takeBack(instance)
    return true
  }
  const [, folder = ''] = words
  const manifest = await readManifest(folder).catch(() => undefined)
  await commitResume(instance, manifest && requestOf(manifest), { current: State.RUNNING })
  return false
}
