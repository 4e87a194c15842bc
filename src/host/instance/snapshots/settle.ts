import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { MachineInstance } from '../instance.ts'
import { undoSteps } from '../machine/steps.ts'
import { checkLayers } from './check-layers.ts'
import { LAYERS_FOLDER, layersOfBackend } from './layers.ts'
import { settleMemories } from './memory-folder.ts'
import { canMerge, closeLayer, mergeLayers, settleMerge } from './merge-layers.ts'
import { isImage } from './plan-snapshot.ts'
import { settleRevert } from './revert.ts'
import { settleSnapshot } from './take-snapshot.ts'

/** Finishes the changes of layers that have begun. To be called in a change, before another one of layers and a start. */
export async function settleLayers(instance: MachineInstance): Promise<void> {
  const { context, recorded } = instance
  // Whoever has ended its machine may not have known of it.
  if (recorded.record.current === State.STOPPED) await settleRevert(instance)
  for (const step of recorded.steps.filter((each) => each.step === 'snapshot')) {
    await settleSnapshot(instance, step)
    // One that was not taken may have left layers.
    mergeLater(instance)
  }
  for (const step of recorded.steps) if (step.step === 'merge') await settleMerge(instance, step)
  await settleMemories(context.folder, recorded.record)
  const left = recorded.steps.filter(({ step }) => step === 'layer')
  if (left.length === 0) return
  for (const { words } of left) await closeLayer(instance, Number(words[0]))
  const drop = await undoSteps(context, left)
  await recorded.note({ drop, kind: 'snapshot', text: 'layers of snapshots were removed', frees: true })
}

/**
 * Finishes what has begun, and throws FAILED_PRECONDITION unless the folder has the layers of the record and no other. An
 * older record, such as one of a registry that was made anew, would lead the guest to what it has long overwritten.
 */
export async function prepareStart(
  instance: MachineInstance,
  { document, specification }: Pick<InstanceRecord, 'document' | 'specification'>,
): Promise<void> {
  const { context } = instance
  await settleLayers(instance)
  const { record } = instance
  const { backends = {} } = specification ?? {}
  for (const { active, backend, base, qcow2Base, secret } of record.layers) {
    const { encryption, path } = backends[backend]?.file ?? {}
    if (!active || path === undefined) continue
    const refuse = (field: string, found: string, wanted: string) => {
      const at = pathOf('backends', backend, 'file', field)
      throw new AgentError('FAILED_PRECONDITION', `${at}: ${found}, want ${wanted}: snapshots are on that`)
    }
    if (path !== base) refuse('path', path, base)
    if (isImage({ document }, backend) !== qcow2Base)
      refuse('format', qcow2Base ? 'raw' : 'qcow2', qcow2Base ? 'qcow2' : 'raw')
    if ((encryption !== undefined) !== (secret !== ''))
      refuse('encryption', encryption ? 'with a secret' : 'none', secret ? `secret ${secret}` : 'none')
  }
  for (const key of Object.keys(backends)) await checkLayers(context.folder, layersOfBackend(record, key))
  await refuseUnknown(instance)
}

/** Throws FAILED_PRECONDITION when the folder has a layer that the record does not have: a new one could get its name. */
export async function refuseUnknown({ context, record }: MachineInstance): Promise<void> {
  const folder = join(context.folder, LAYERS_FOLDER)
  // Few have one, and an error of a thread of libuv takes longer than this look.
  const names = existsSync(folder) ? await readdir(folder).catch(() => []) : []
  const known = record.layers.map(({ id }) => `${id}`)
  const other = names.find(
    (name) => /^\d+\.(qcow2|merged)$/.test(name) && !known.includes(name.replace(/\..*/, '')),
  )
  if (other === undefined) return
  const text = `${join(folder, other)}: a layer of a snapshot that the record of the instance does not have`
  throw new AgentError('FAILED_PRECONDITION', text)
}

/** Goes on with merges that were cut short, after the present change. */
export function mergeLater(instance: MachineInstance): void {
  if (!canMerge(instance)) return
  instance.follow('merge', async () => {
    if (instance.context.machine === undefined) return
    await mergeLayers(instance).catch((error) =>
      instance.context.log.warn('layers not merged', { error: messageOf(error) }),
    )
  })
}

/** The same for all: a clone that is gone may have been on what is below their layers. */
export function mergeAll(instances: ReadonlyMap<string, MachineInstance>): void {
  for (const instance of instances.values()) mergeLater(instance)
}
