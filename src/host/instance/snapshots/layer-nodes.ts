import { messageOf } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import type { Layer } from '../../../gen/microvm/instance/v1/instance.ts'
import { fileNodeOf, keyOf, layerParts } from '../../qemu/device-parts.ts'
import { plugCommand } from '../../qemu/parts.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import { specKey } from '../../spec/spec-key.ts'
import { closeUnused } from '../devices/descriptor-sets.ts'
import { openerOf } from '../devices/parts-host-of.ts'
import { refused } from '../devices/plug.ts'
import type { MachineInstance } from '../instance.ts'
import { diskNode, layerNode, layerPath } from './layers.ts'

/** Opens the files of new layers in QEMU. Nothing writes to them yet. */
export async function openLayers(instance: MachineInstance, added: readonly Layer[]): Promise<void> {
  const { context } = instance
  const { qmp } = instance.machine()
  const opener = openerOf(instance)
  const parts = added.flatMap(({ backend, id, secret }) => {
    const file = { node: layerNode(id), path: layerPath(context.folder, id) }
    const key = secret === '' ? undefined : keyOf(specKey(backend))
    return layerParts(file, { backing: null, isTop: true, opener, key })
  })
  await opener?.open(qmp, instance.ending)
  for (const part of parts) await qmp.command(plugCommand(part), instance.ending)
}

/** Has QEMU write to layers that are open, to all from one moment on: the guest stands still. */
export async function writeToLayers(instance: MachineInstance, added: readonly Layer[]): Promise<void> {
  const actions = added.map(({ id, backend }) => ({
    type: 'blockdev-snapshot' as const,
    data: { node: diskNode(instance.record, backend), overlay: layerNode(id) },
  }))
  if (actions.length > 0) await instance.machine().qmp.execute('transaction', { actions }, instance.ending)
}

/** Closes layers that QEMU does not write to, and throws `error`. */
export async function closeAndThrow(
  instance: MachineInstance,
  added: readonly Layer[],
  error: unknown,
): Promise<never> {
  const { qmp } = instance.machine()
  return await undoAndThrow(refused('disks', error), (limit) => removeNodes(qmp, added, limit))
}

/** Runs `work` while the guest stands still, and returns for how long it did, in microseconds. */
export async function whileStill(
  instance: MachineInstance,
  isRunning: boolean,
  work: () => Promise<unknown>,
): Promise<number> {
  const { qmp } = instance.machine()
  if (!isRunning) {
    await work()
    return 0
  }
  const begun = process.hrtime.bigint()
  await qmp.execute('stop', {}, instance.ending)
  try {
    await work()
  } catch (error) {
    await qmp.execute('cont', {}, instance.ending).catch(() => {})
    throw error
  }
  // The work is done: what comes between ends the machine, and is told then.
  await qmp
    .execute('cont', {}, instance.ending)
    .catch((error) => instance.context.log.warn('guest not continued', { error: messageOf(error) }))
  return Number((process.hrtime.bigint() - begun) / 1000n)
}

/** Whether a disk uses the layers: then they have something below them. */
export async function areOnTop(
  qmp: QmpClient,
  added: readonly Layer[],
  signal: AbortSignal,
): Promise<boolean> {
  const { nodes, edges } = await qmp.execute('x-debug-query-block-graph', {}, signal)
  const ids = added.map(({ id }) => nodes.find(({ name }) => name === layerNode(id))?.id)
  return ids.every(
    (id) => id !== undefined && edges.some((edge) => edge.parent === id && edge.name === 'backing'),
  )
}

/** Removes the blocks of layers from QEMU, the topmost first. What is missing or in use stays as it is. */
export async function removeNodes(
  qmp: QmpClient,
  layers: readonly Pick<Layer, 'id'>[],
  signal: AbortSignal,
): Promise<void> {
  for (const { id } of layers.toReversed())
    for (const name of [layerNode(id), fileNodeOf(layerNode(id))])
      await qmp.execute('blockdev-del', { 'node-name': name }, signal).catch(() => {})
  await closeUnused(qmp, signal).catch(() => {})
}

/** The bytes of the disks that QEMU has, by the names of its nodes. */
export async function nodeSizes(qmp: QmpClient, signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, signal)
  return new Map(nodes.map((node) => [node['node-name'], node.image['virtual-size']]))
}
