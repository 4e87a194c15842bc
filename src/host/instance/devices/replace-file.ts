import { AgentError } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import { type Part, plugCommand } from '../../qemu/parts.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import type { BlockNode } from '../../qemu/qmp/commands.ts'
import { type NodeNames, nodeNames, specKey } from '../../spec/spec-key.ts'
import { blockNodes, closeUnused } from './descriptor-sets.ts'
import { refused } from './plug.ts'
import type { RunningOpener } from './running-opener.ts'

/** What a replacement needs of an instance. */
export interface QmpUser {
  machine(): { readonly qmp: QmpClient }
  /** Ends waits for QEMU. */
  readonly ending: AbortSignal
}

export interface FileReplacement {
  readonly path: string
  /** The nodes of the new file and of the disk, as a start makes them. */
  readonly nodes: readonly Part[]
  /** Of a QEMU that cannot open the file itself. */
  readonly opener?: RunningOpener | undefined
}

/**
 * Gives the format node of a disk another file node; the file node itself refuses a new name. A larger file enlarges the
 * disk, which the guest is told.
 */
export async function replaceFile(
  instance: QmpUser,
  key: string,
  { path, nodes: parts, opener }: FileReplacement,
): Promise<string> {
  const { qmp } = instance.machine()
  const signal = instance.ending
  const names = nodeNames(specKey(key))
  const nodes = await blockNodes(qmp, signal)
  const sizeBefore = sizeOf(nodes, names.format)
  const [old, added] = nodes.some((node) => node['node-name'] === names.otherFile)
    ? [names.otherFile, names.file]
    : [names.file, names.otherFile]
  const optionsOf = (name: string) => {
    const part = parts.find(({ properties }) => properties['node-name'] === name)
    if (part !== undefined) return plugCommand(part).arguments
    throw new AgentError('INTERNAL', `backend ${key}: no block node ${name}`)
  }
  const [node, format] = [{ ...optionsOf(names.file), 'node-name': added }, optionsOf(names.format)]
  const reopen = (file: string, limit: AbortSignal) =>
    qmp.execute('blockdev-reopen', { options: [{ ...format, file }] }, limit)
  try {
    await opener?.open(qmp, signal)
    await qmp.execute('blockdev-add', node, signal)
  } catch (error) {
    return await undoAndThrow(refused(`backend ${key}`, error), async (limit) => opener?.discard(qmp, limit))
  }
  try {
    const size = sizeOf(await blockNodes(qmp, signal), added)
    if (size < sizeBefore) {
      const fault = `${path} has ${size} bytes, want at least ${sizeBefore}`
      throw new AgentError('FAILED_PRECONDITION', `backend ${key}: ${fault}`)
    }
    await reopen(added, signal).catch((error) => {
      throw refused(`backend ${key}: ${path}`, error)
    })
    if (size > sizeBefore) await qmp.execute('block_resize', { 'node-name': names.format, size }, signal)
    await removeNode(qmp, old, signal)
    return size > sizeBefore ? `, and the disk has ${size} bytes in place of ${sizeBefore}` : ''
  } catch (error) {
    return await undoAndThrow(error, async (limit) => {
      await reopen(old, limit).catch(() => {})
      await removeNode(qmp, added, limit)
    })
  }
}

/** Whether the disk has the file `path`. Removes the file node of the other one, which a daemon left when it died. */
export async function hasFile(instance: QmpUser, key: string, path: string): Promise<boolean> {
  const { qmp } = instance.machine()
  const names = nodeNames(specKey(key))
  const nodes = await blockNodes(qmp, instance.ending)
  const isSo = nodes.find((node) => node['node-name'] === names.format)?.file === path
  const left = nodes.filter((node) => isFileNode(names, node) && (node.file === path) !== isSo)
  for (const node of left) await removeNode(qmp, node['node-name'], instance.ending)
  return isSo
}

function isFileNode({ file, otherFile }: NodeNames, node: BlockNode): boolean {
  return [file, otherFile].includes(node['node-name'])
}

/** QEMU refuses to remove a node that is in use. */
async function removeNode(qmp: QmpClient, name: string, signal: AbortSignal): Promise<void> {
  await qmp.execute('blockdev-del', { 'node-name': name }, signal).catch(() => {})
  await closeUnused(qmp, signal).catch(() => {})
}

function sizeOf(nodes: readonly BlockNode[], name: string): number {
  const node = nodes.find((each) => each['node-name'] === name)
  if (node !== undefined) return node.image['virtual-size']
  throw new AgentError('FAILED_PRECONDITION', `block node ${name}: not found`)
}
