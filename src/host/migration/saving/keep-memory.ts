import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { messageOf } from '../../../base/errors.ts'
import { type Layer, State } from '../../../gen/microvm/instance/v1/instance.ts'
import { hasAgentWay } from '../../instance/connect-agent.ts'
import { settleReplugs } from '../../instance/devices/replug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { Caller } from '../../instance/instances.ts'
import type { KeepRequest, KeptMemory } from '../../instance/moves.ts'
import { layersUpTo } from '../../instance/snapshots/layers.ts'
import { checkSavable, goOn } from '../machine-state.ts'
import { FILES } from '../manifest.ts'
import { copyQuickly, factsOf, syncFile } from '../memory-file.ts'
import { publish } from '../saved-folder.ts'
import { checkSuspend } from './check-suspend.ts'
import { bringDisks, layerName, manifestOf, saveMemory, saveRings } from './saved-files.ts'
import { newSaving, type Saving } from './saving.ts'
import { attachAgain, microseconds, millisecondsOf, SAVING, type Step, save } from './steps.ts'
import type { SavingParts } from './suspend.ts'

/** Keeps the memory of a machine with new layers of its disks. The machine goes on, also when that fails. To be called in a change. */
export async function keepMemory(
  instance: MachineInstance,
  request: KeepRequest,
  { folder, host, atStep }: SavingParts,
  caller: Pick<Caller, 'inStep'>,
): Promise<KeptMemory> {
  const { record, context } = instance
  const { qmp } = instance.machine()
  const wasRunning = record.current === State.RUNNING
  const hasAgent = !request.withoutAgent && hasAgentWay(instance)
  // What an earlier one could not let go on.
  if (!wasRunning) await goOn(qmp, { wasRunning, signal: instance.ending })
  await settleReplugs(instance)
  const vsock = await checkSuspend(instance, { wasRunning, hasAgent })
  if (vsock === undefined) await checkSavable(qmp, instance.ending)
  const facts = { folder, hasAgent, host, id: randomUUID(), request, vsock, wasRunning }
  const saving = newSaving(instance, { ...facts, step: 'memory' })
  const kept = { stillUs: 0n, waitingUs: 0n, wasAtRest: false }
  const text = `the memory of the machine is being kept as ${request.name}`
  const times = await save(saving, stepsOf(request, kept), { atStep, caller, text })
  await atStep('export', 'end')
  const drop = [instance.recorded.step('memory', [''])]
  await instance.recorded.note({ drop, kind: 'state', text: 'the memory of the machine is kept' })
  context.log.info('memory kept', { folder, ...millisecondsOf(times) })
  return kept
}

type Kept = { -readonly [Field in keyof KeptMemory]: KeptMemory[Field] }

/**
 * In this order. While the guest stands still, its memory is copied to the host's cache of the file alone; its disk and the digests
 * follow once it goes on.
 */
function stepsOf({ isWhole, layers }: KeepRequest, kept: Kept): readonly Step[] {
  let detachedAt: number | undefined
  let disks: readonly string[] = []
  return [
    SAVING.quiesce,
    {
      ...SAVING.detach,
      make: async (saving) => {
        detachedAt = performance.now()
        await SAVING.detach.make(saving)
      },
    },
    SAVING.unplug,
    SAVING.folder,
    { name: 'rings', make: (saving) => saveRings(saving, { hasConsole: false }) },
    { name: 'overlays', make: () => layers.make() },
    SAVING.stop,
    { name: 'memory', make: (saving) => saveMemory(saving, copyQuickly) },
    { name: 'layers', make: () => layers.putOnTop() },
    SAVING.devices,
    {
      name: 'disks',
      isNeeded: () => isWhole,
      make: async (saving) => {
        disks = await bringDisks(saving, seenLayers(saving.known.record))
      },
    },
    {
      name: 'cont',
      make: async (saving) => {
        await SAVING.stop.undo(saving)
        if (saving.wasRunning) kept.stillUs = microseconds(performance.now() - saving.stoppedAt)
      },
    },
    {
      name: 'attach',
      make: async (saving) => {
        kept.wasAtRest = await attachAgain(saving)
        kept.waitingUs = microseconds(performance.now() - (detachedAt ?? saving.stoppedAt))
      },
    },
    { name: 'digests', make: (saving) => addDigests(saving, disks) },
    { name: 'manifest', make: (saving) => publishKept(saving, isWhole ? undefined : layers.backends) },
  ]
}

/** Those below the disks, without what only other snapshots need. */
function seenLayers({ layers }: Saving['known']['record']): readonly Layer[] {
  return layers.filter(({ active }) => active).flatMap(({ id }) => layersUpTo(layers, id))
}

async function addDigests({ files, memoryForm, work }: Saving, disks: readonly string[]): Promise<void> {
  for (const name of [FILES.devices, ...(memoryForm === 'file' ? [FILES.memory] : [])])
    await syncFile(join(work, name))
  for (const name of [FILES.devices, ...(memoryForm === 'file' ? [FILES.memory] : []), ...disks])
    files.set(name, await factsOf(join(work, name)))
}

/** Without `kept`, the keys of backends whose layers stay with the instance, the layers below the new ones are in the folder. */
async function publishKept(saving: Saving, kept: ReadonlySet<string> | undefined): Promise<void> {
  const { files, folder, instance } = saving
  // Snapshots, and layers of others, stay with the instance.
  const layers = saving.known.record.layers.filter(({ id }) => files.has(layerName(id)))
  const record = { ...saving.known.record, layers, snapshots: [] }
  saving.known = { ...saving.known, record }
  await publish(folder, await manifestOf(saving, kept ?? new Set()), {
    warn: (error) =>
      instance.context.log.error('folder of a kept memory not finished', { folder, error: messageOf(error) }),
  })
}
