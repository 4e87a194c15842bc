import { AgentError, errnoOf, messageOf } from '../../../../base/errors.ts'
import { UndoList } from '../../../../base/undo.ts'
import type { Storage } from '../../../../gen/agent.ts'
import type { Attachment } from '../../attachment.ts'
import type { StorageDependencies } from '../../driver.ts'
import { mountStorage } from '../../mount-storage.ts'
import { makeFilesystem } from '../block.ts'
import { layerNode } from './layer-node.ts'
import { type Image, type Layer, parseImage, type UpperLayer } from './parse-image.ts'
import { prepareUpper } from './prepare-upper.ts'
import { MAPPED_PREFIX } from './unmap-stale.ts'

/** One image under way. */
interface Mounting {
  readonly dependencies: StorageDependencies
  readonly signal: AbortSignal
  /** What the image holds while it is used. */
  readonly undo: UndoList
  /** Where its layers are mounted. */
  readonly folder: string
  /** Names what else it has, for the whole guest. */
  readonly id: string
}

/** Mounted beneath all others: the kernel lays no single layer over nothing. */
const EMPTY = 'empty'

/** The layer that is written to; the others are called by their numbers. */
const UPPER = 'rw'

/**
 * Mounts the layers of one image, each from its own disk or partition, and lays them over each other at their mount
 * point (spec E.3.7). Throws INVALID_ARGUMENT for layers that do not go together, UNIMPLEMENTED for options that are not
 * known, INTERNAL when a disk does not come or cannot be mounted, or what `signal` is aborted with; then nothing is left.
 */
export async function mountImage(
  storages: readonly [Storage, ...Storage[]],
  dependencies: StorageDependencies,
  signal: AbortSignal,
): Promise<Attachment> {
  const image = parseImage(storages)
  const { mountPoint, fsGroup } = image
  const id = await shortHash(mountPoint)
  // A container's id cannot begin so; and it is short, for the kernel takes but a page of paths.
  const folder = `${dependencies.bundlesRoot}/.layers-${id}`
  const undo = new UndoList(dependencies.log)
  try {
    signal.throwIfAborted()
    const options = await mountLayers(image, { dependencies, signal, undo, folder, id })
    const overlay = { source: 'overlay', fstype: 'overlay', options: [...options], mountPoint, fsGroup }
    await mountStorage(overlay, dependencies, signal)
  } catch (error) {
    await undo.run()
    throw error
  }
  return { mountPoint, kind: 'mount', keep: false, release: () => undo.run() }
}

/** Gives the options of the overlay. */
async function mountLayers({ lowers, upper }: Image, mounting: Mounting): Promise<readonly string[]> {
  const { folder } = mounting
  await makeFolder(folder, mounting)
  await makeFolder(`${folder}/${EMPTY}`, mounting)
  const paths: string[] = []
  for (const [index, layer] of lowers.entries()) paths.push(await mountLayer(layer, `${index}`, mounting))
  const lowerdir = `lowerdir=${[...paths, `${folder}/${EMPTY}`].join(':')}`
  if (upper === undefined) return ['ro', lowerdir]
  const path = await mountUpper(upper, mounting)
  const { upperdir, workdir } = await prepareUpper(path, upper.directories, mounting.dependencies)
  return [lowerdir, `upperdir=${upperdir}`, `workdir=${workdir}`]
}

async function mountUpper(upper: UpperLayer, mounting: Mounting): Promise<string> {
  return mountLayer(upper, UPPER, mounting, async (node) => {
    const { dependencies, signal } = mounting
    if (upper.makesFilesystem) await makeFilesystem(dependencies.os.tools, node, signal)
  })
}

async function mountLayer(
  layer: Layer,
  name: string,
  mounting: Mounting,
  prepare: (node: string) => Promise<void> = async () => {},
): Promise<string> {
  const { dependencies, signal, undo, folder, id } = mounting
  const type = name === UPPER ? 'ext4' : 'erofs'
  const node = await layerNode(
    layer,
    { ...dependencies, undo, name: `${MAPPED_PREFIX}${id}-${name}` },
    signal,
  )
  await prepare(node)
  const target = `${folder}/${name}`
  await makeFolder(target, mounting)
  signal.throwIfAborted()
  try {
    await dependencies.os.mounts.mount({ source: node, target, type, ...layer.mount })
  } catch (error) {
    throw explained(error, layer)
  }
  undo.add(`unmount ${target}`, () => dependencies.os.mounts.unmount(target))
  return target
}

async function makeFolder(path: string, { dependencies, undo }: Mounting): Promise<void> {
  const { files } = dependencies.os
  await files.makeDirectory(path, 0o755)
  undo.add(`remove ${path}`, () => files.removeDirectory(path))
}

/** What dm-verity holds back, a file system sees as a disk that cannot be read. */
function explained(error: unknown, { source, partition, verity }: Layer): AgentError {
  const errno = errnoOf(error)
  const where = partition === undefined ? source : `${source}, partition ${partition}`
  const hint = verity !== undefined && errno === 'EIO' ? ': its data does not match the root hash' : ''
  const text = `layer ${where}: ${messageOf(error)}${hint}`
  return new AgentError('INTERNAL', text, { cause: error, ...(errno === undefined ? {} : { errno }) })
}

async function shortHash(text: string): Promise<string> {
  // Few guests have such images, and Node takes milliseconds to load what it calls crypto.
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(text).digest('hex').slice(0, 8)
}
