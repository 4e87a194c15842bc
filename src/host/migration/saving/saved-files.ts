import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type Layer, Operation } from '../../../gen/microvm/instance/v1/instance.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import { answer } from '../../instance/holder/ask-holder.ts'
import type { Ring } from '../../instance/holder/holder.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { VARIABLES } from '../../instance/machine/instance-files.ts'
import { QEMU } from '../../instance/machine/machine.ts'
import { layerPath } from '../../instance/snapshots/layers.ts'
import { FILES, type Manifest } from '../manifest.ts'
import { factsOf, memoryOf } from '../memory-file.ts'
import { bring } from '../saved-folder.ts'
import { writeState } from '../state-file.ts'
import { outsideOf } from './check-suspend.ts'
import type { Saving } from './saving.ts'

/** The guest's memory, where it is one file of QEMU. `copy` brings it to a new file. */
export async function saveMemory(
  saving: Saving,
  copy: (from: string, to: string) => Promise<void>,
): Promise<void> {
  const { instance, work } = saving
  const children = await answer(instance.context, instance.machine().holder.children())
  const pid = children.find(({ name, exit }) => name === QEMU.child && exit === undefined)?.pid ?? 0
  const { memoryMib = 0n } = specificationOf(instance).board ?? {}
  const memory = await memoryOf(pid, Number(memoryMib) * 2 ** 20)
  saving.memoryForm = memory === undefined ? 'stream' : 'file'
  if (memory !== undefined) await copy(memory, join(work, FILES.memory))
}

/** The layers of snapshots, and UEFI's variables. The guest's writes are in them by now. */
export async function saveDisks(saving: Saving): Promise<void> {
  for (const name of await bringDisks(saving, saving.instance.record.layers))
    saving.files.set(name, await factsOf(join(saving.work, name)))
}

/** Brings these layers and UEFI's variables, and returns the names of their files. */
export async function bringDisks(
  { instance, work }: Saving,
  layers: readonly Layer[],
): Promise<readonly string[]> {
  const { folder } = instance.context
  const names: string[] = []
  for (const { id } of layers) {
    await bring(layerPath(folder, id), join(work, layerName(id)), 'link')
    names.push(layerName(id))
  }
  if (!instance.recorded.steps.some(({ step }) => step === 'variables')) return names
  await bring(join(folder, VARIABLES), join(work, VARIABLES), 'copy')
  return [...names, VARIABLES]
}

/** Of a layer's file, in the folder of a saved machine. */
export function layerName(id: number): string {
  return `disks/${id}.qcow2`
}

/** The rings of streams, and with `hasConsole` that of the console. */
export async function saveRings(saving: Saving, { hasConsole }: { readonly hasConsole: boolean }) {
  const { files, instance, work } = saving
  const { context, streams } = instance
  const rings = hasConsole
    ? await drainedRings(instance)
    : await answer(context, instance.machine().holder.rings())
  saving.rings = rings.filter(({ number }) => (number === 0 ? hasConsole : streams.has(number)))
  for (const { number } of saving.rings) {
    const name = number === 0 ? 'console.ring' : `streams/${number}.ring`
    await bring(join(context.folder, name), join(work, name), 'copy')
    files.set(name, await factsOf(join(work, name)))
  }
}

/** So often the holder must have nothing more to read, in turns of its loop: QEMU, which stands still, has sent all before. */
const QUIET_TURNS = 3
const TURN_MS = 5

/** The rings of the holder, once they have all that QEMU has sent. */
export async function drainedRings(instance: MachineInstance): Promise<readonly Ring[]> {
  const { holder } = instance.machine()
  for (let [before, quiet] = ['', 0]; ; ) {
    const rings = await answer(instance.context, holder.rings())
    const now = rings.map(({ end, number }) => `${number}:${end}`).join()
    quiet = now === before ? quiet + 1 : 0
    if (quiet === QUIET_TURNS) return rings
    before = now
    await delay(TURN_MS)
  }
}

/** What a resume tells of the suspend. */
function timesOf({ recorded: { timeline } }: MachineInstance): Pick<Manifest, 'operation' | 'standing'> {
  if (timeline === undefined) return {}
  const operation = Operation.encode(timeline.operation()).finish()
  return { operation: Buffer.from(operation).toString('base64'), standing: timeline.since }
}

/** Writes the last file. `kept` are the keys of backends whose content is kept elsewhere, as layers. */
export async function manifestOf(saving: Saving, kept: ReadonlySet<string>): Promise<Manifest> {
  const { files, hasAgent, host, id, instance, known, memoryForm, request, rings, unplugged } = saving
  const { record } = known
  const createdMs = Date.now()
  const path = join(saving.work, FILES.state)
  await writeState(path, known, { ...saving, createdMs })
  files.set(FILES.state, await factsOf(path))
  const outside = await outsideOf(instance, saving.disks, kept)
  return {
    version: 1,
    ...{ id, name: request.name, tenant: record.properties?.tenant ?? '', key: instance.key },
    ...{ createdMs, host, state: saving.wasRunning ? 'running' : 'paused', memoryForm, hasAgent },
    ...{ isClone: record.clone, unplugged },
    files: Object.fromEntries(files),
    outside,
    ...timesOf(instance),
    streams: known.streams.map(({ port, container, exec, stream }) => ({
      ...{
        port,
        container,
        exec,
        stream,
        isLive: hasAgent && rings.some(({ isClosed, number }) => number === port && !isClosed),
      },
    })),
  }
}
