import { statSync } from 'node:fs'
import type { Layer } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { fileNodeOf, keyOf, layerParts } from '../../qemu/device-parts.ts'
import { type Part, plugCommand, removeCommand } from '../../qemu/parts.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import { pathOf } from '../../spec/component-path.ts'
import { nodeNames, specKey } from '../../spec/spec-key.ts'
import { closeUnused } from '../devices/descriptor-sets.ts'
import { openerOf } from '../devices/parts-host-of.ts'
import { secretValue } from '../devices/secret-value.ts'
import { checkImage } from '../documents/check-images.ts'
import type { MachineInstance } from '../instance.ts'
import { isKept, makeSteps, undoSteps } from '../machine/steps.ts'
import { layerNode, layerPath } from './layers.ts'

/** Uses the machine's QEMU, or one without a machine for as long as `use` takes. */
export async function withBlocks<T>(
  instance: MachineInstance,
  use: (qmp: QmpClient) => Promise<T>,
): Promise<T> {
  const { context, recorded } = instance
  if (context.machine !== undefined) return await use(context.machine.qmp)
  const planned = await instance.planned({}, 'blocks')
  const steps = planned.map(({ step, words }) => recorded.step(step, words))
  const add = steps.filter((step) => !isKept(step))
  await recorded.commit({ add, kind: 'snapshot', text: 'the disks are opened', frees: true })
  try {
    await makeSteps(context, planned, recorded.record)
    return await use(instance.machine().qmp)
  } finally {
    const drop = await undoSteps(context, add)
    await recorded.note({ drop, kind: 'snapshot', text: 'the disks are closed', frees: true })
  }
}

/** QEMU's name of the block node of the file below a layer. */
export function baseNode({ specification }: Pick<InstanceRecord, 'specification'>, layer: Layer): string {
  const isPresent = specification?.backends[layer.backend]?.file?.path === layer.base
  return isPresent ? nodeNames(specKey(layer.backend)).format : `base-${layer.id}`
}

/**
 * Opens the layers and the file below them, as far as QEMU has them not open already. Returns what closes them again, without
 * an error.
 */
export async function openBlocks(
  instance: MachineInstance,
  qmp: QmpClient,
  chain: readonly Layer[],
): Promise<() => Promise<void>> {
  const { context, ending, record } = instance
  const [lowest] = chain
  const top = chain.at(-1)
  if (lowest === undefined || top === undefined) return async () => {}
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, ending)
  const known = new Set(nodes.map((node) => node['node-name']))
  const opener = openerOf(instance)
  const base = baseNode(record, top)
  const parts: Part[] = []
  const key = top.secret === '' ? undefined : keyFor(base, top)
  if (key !== undefined && !chain.every(({ id }) => known.has(layerNode(id)))) {
    // It is not there before the first object.
    const objects = await qmp.execute('qom-list', { path: '/objects' }, ending).catch(() => [])
    if (!objects.some(({ name }) => name === key)) parts.push(await secretPart(instance, key, top))
  }
  if (!known.has(base)) {
    if (lowest.qcow2Base) await checkImage(top.backend, lowest.base)
    const isDevice = statSync(lowest.base, { throwIfNoEntry: false })?.isBlockDevice() === true
    const filename = opener?.disk(lowest.base, true) ?? lowest.base
    const file = { driver: isDevice ? 'host_device' : 'file', 'node-name': fileNodeOf(base), filename }
    const raw = key === undefined ? { driver: 'raw' } : { driver: 'luks', 'key-secret': key }
    const format = lowest.qcow2Base ? { driver: 'qcow2', backing: null } : raw
    const disk = { ...format, 'node-name': base, file: fileNodeOf(base), 'read-only': true }
    parts.push({ option: 'blockdev', properties: file }, { option: 'blockdev', properties: disk })
  }
  for (const [index, { id }] of chain.entries()) {
    const node = layerNode(id)
    const below = chain[index - 1]
    const backing = below === undefined ? base : layerNode(below.id)
    const isTop = index === chain.length - 1
    const file = { node, path: layerPath(context.folder, id) }
    if (!known.has(node)) parts.push(...layerParts(file, { backing, isTop, opener, key }))
  }
  const close = async () => {
    for (const command of parts.toReversed().flatMap((part) => removeCommand(part) ?? []))
      await qmp.command(command, ending).catch(() => {})
    if (parts.length > 0) await closeUnused(qmp, ending).catch(() => {})
  }
  try {
    await opener?.open(qmp, ending)
    for (const part of parts) await qmp.command(plugCommand(part), ending)
    return close
  } catch (error) {
    await close()
    throw instance.explain(error, lowest.base)
  }
}

/** QEMU's object with the secret of a chain of layers: a disk of the machine has one already. */
function keyFor(base: string, { backend }: Layer): string {
  return base === nodeNames(specKey(backend)).format ? keyOf(specKey(backend)) : `${base}.key`
}

async function secretPart(instance: MachineInstance, id: string, { backend, secret }: Layer): Promise<Part> {
  const planned = await instance.planned({}, 'blocks')
  const file = planned.find(({ step }) => step === 'qemu')?.secrets?.get(secret)
  const data = await secretValue(pathOf('backends', backend, 'file', 'encryption', 'secret'), secret, file)
  return { option: 'object', type: 'secret', properties: { id, data, format: 'base64' } }
}
