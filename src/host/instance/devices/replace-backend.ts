import { statSync } from 'node:fs'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import { type Backend, File_Access } from '../../../gen/microvm/instance/v1/instance.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import { nodeNames, specKey } from '../../spec/spec-key.ts'
import type { MachineInstance } from '../instance.ts'
import { specificationOf } from './plug.ts'
import { isEqualBackend } from './specification.ts'

/** Provides a device from elsewhere. The guest goes on, and may use the device meanwhile. To be called in a change. */
export async function replaceBackend(
  instance: MachineInstance,
  key: string,
  backend: Backend,
): Promise<void> {
  const specification = specificationOf(instance)
  const present = specification.backends[key]
  if (present === undefined)
    throw new AgentError('NOT_FOUND', `instance ${instance.key}: backend ${key}: not found`)
  if (isEqualBackend(present, backend)) return
  const work = replacement(key, present, backend)
  const { recorded } = instance
  const backends = { ...specification.backends, [key]: backend }
  const done = { set: { specification: { ...specification, backends } }, kind: 'backend' } as const
  const text = `backend ${key} was replaced`
  if (instance.context.machine === undefined) return await recorded.commit({ ...done, text })
  const step = recorded.step('replace', [key, pathOf(present), pathOf(backend)])
  await recorded.commit({ add: [step], kind: 'backend', text: `backend ${key} is being replaced` })
  try {
    const told = await work(instance)
    await recorded.commit({ ...done, drop: [step], text: `${text}${told}` })
  } catch (error) {
    await recorded.commit({
      drop: [step],
      kind: 'backend',
      text: `backend ${key} stays: ${messageOf(error)}`,
    })
    throw error
  }
}

/** Finishes what an earlier daemon has begun: QEMU says which file a disk has. To be called in a change. */
export async function settleReplacements(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  for (const step of recorded.steps.filter((each) => each.step === 'replace')) {
    const [key = '', , next = ''] = step.words
    const specification = specificationOf(instance)
    const file = specification.backends[key]?.file
    let set = {}
    if (file !== undefined) {
      const { qmp } = instance.machine()
      const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, instance.ending)
      const names = nodeNames(specKey(key))
      const isDone = nodes.find((node) => node['node-name'] === names.format)?.file === next
      const unused = nodes.filter(
        (node) =>
          [names.file, names.otherFile].includes(node['node-name']) && (node.file === next) !== isDone,
      )
      for (const node of unused) await removeNode(qmp, node['node-name'], instance.ending)
      if (isDone) {
        const backends = { ...specification.backends, [key]: { file: { ...file, path: next } } }
        set = { specification: { ...specification, backends } }
      }
    }
    await recorded.commit({
      set,
      drop: [step],
      kind: 'backend',
      text: `the replacement of backend ${key} is settled`,
    })
  }
}

/** What replaces a backend; it returns what is to be told besides. */
type Replacement = (instance: MachineInstance) => Promise<string>

function replacement(key: string, present: Backend, next: Backend): Replacement {
  if (present.file !== undefined && next.file !== undefined) {
    const { path, access } = next.file
    if (access !== present.file.access)
      throw new AgentError(
        'INVALID_ARGUMENT',
        `backend ${key}: file.access: the guest has seen another, want the same`,
      )
    if (access === File_Access.SCRATCH)
      throw new AgentError(
        'UNIMPLEMENTED',
        `backend ${key}: what the guest wrote to a scratch disk is in no file that another could replace`,
      )
    return (instance) => replaceFile(instance, key, { path, isReadOnly: access === File_Access.READ_ONLY })
  }
  if (present.tap !== undefined && next.tap?.interfaceName === present.tap.interfaceName) {
    const { interfaceName, bridge } = next.tap
    return async ({ context }) => {
      await context.links.connect(interfaceName, bridge)
      return ''
    }
  }
  const isNetwork = present.tap !== undefined || present.passt !== undefined
  throw new AgentError(
    'UNIMPLEMENTED',
    isNetwork
      ? `backend ${key}: another netdev below a realized NIC does not exist in QEMU 7.2`
      : `backend ${key}: only the file of a disk and the bridge of a tap can be replaced`,
  )
}

/**
 * Gives the format node another file node; the protocol node itself refuses a new name. A larger file enlarges the disk,
 * which the guest is told.
 */
async function replaceFile(
  instance: MachineInstance,
  key: string,
  { path, isReadOnly }: { readonly path: string; readonly isReadOnly: boolean },
): Promise<string> {
  const { qmp } = instance.machine()
  const signal = instance.ending
  const names = nodeNames(specKey(key))
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, signal)
  const sizeBefore = sizeOf(nodes, names.format)
  const [old, added] = nodes.some((node) => node['node-name'] === names.otherFile)
    ? [names.otherFile, names.file]
    : [names.file, names.otherFile]
  const isDevice = statSync(path, { throwIfNoEntry: false })?.isBlockDevice() === true
  const driver = isDevice ? 'host_device' : 'file'
  const node = { driver, 'node-name': added, filename: path, 'read-only': isReadOnly } as const
  await qmp.execute('blockdev-add', node, signal)
  try {
    const size = sizeOf(await qmp.execute('query-named-block-nodes', { flat: true }, signal), added)
    if (size < sizeBefore)
      throw new AgentError(
        'FAILED_PRECONDITION',
        `backend ${key}: ${path} has ${size} bytes, want at least ${sizeBefore}`,
      )
    const format = { driver: 'raw', 'node-name': names.format, 'read-only': isReadOnly, file: added } as const
    await qmp.execute('blockdev-reopen', { options: [format] }, signal)
    await removeNode(qmp, old, signal)
    if (size === sizeBefore) return ''
    await qmp.execute('block_resize', { 'node-name': names.format, size }, signal)
    return `, and the disk has ${size} bytes in place of ${sizeBefore}`
  } catch (error) {
    return await undoAndThrow(error, (limit) => removeNode(qmp, added, limit))
  }
}

/** A node that QEMU made with the format node goes with it, and is unknown to `blockdev-del` then. */
async function removeNode(qmp: QmpClient, name: string, signal: AbortSignal): Promise<void> {
  await qmp.execute('blockdev-del', { 'node-name': name }, signal).catch(() => {})
}

function sizeOf(
  nodes: readonly { readonly 'node-name': string; readonly image: { readonly 'virtual-size': number } }[],
  name: string,
): number {
  const node = nodes.find((each) => each['node-name'] === name)
  if (node !== undefined) return node.image['virtual-size']
  throw new AgentError('FAILED_PRECONDITION', `block node ${name}: not found`)
}

function pathOf({ file }: Backend): string {
  return file?.path ?? ''
}
