import { AgentError, errnoOf, messageOf } from '../../../../base/errors.ts'
import { type UndoList, undoOnFailure } from '../../../../base/undo.ts'
import type { Storage } from '../../../../gen/agent.ts'
import { waitForPartition } from '../../../../hotplug/partition.ts'
import type { Attachment } from '../../attachment.ts'
import type { StorageContext, StorageDriver } from '../../driver.ts'
import { clearFolder } from '../../empty-folder.ts'
import { checkMountPoint } from '../../mount-point.ts'
import { mountStorage } from '../../mount-storage.ts'
import { makeFilesystem } from '../block.ts'
import type { LayerDirectory } from './layer-options.ts'
import { type Image, type Layer, parseImage, type UpperLayer } from './parse-image.ts'
import { MAPPED_PREFIX, openVerity, unmapStale } from './verity.ts'

interface ImageMount {
  readonly dependencies: StorageContext
  readonly signal: AbortSignal
  /** Unmounts the layers and removes their folders and dm-verity devices. */
  readonly onRemove: UndoList
  readonly folder: string
  /** A short name of the image that is unique in the guest. */
  readonly id: string
}

/** The folder of an empty lowest layer: the kernel refuses a read-only overlay of a single layer. */
const EMPTY = 'empty'

/** The folder of the upper layer; the folder of a lower layer is named by its number. */
const UPPER = 'rw'

/**
 * Mounts each layer of an image, and an overlay of them at their mount point. Throws INVALID_ARGUMENT for layers that
 * form no image, UNIMPLEMENTED for unknown options, INTERNAL when a disk does not appear or cannot be mounted, or the
 * abort reason; all steps are then undone.
 */
export async function mountImage(
  storages: readonly [Storage, ...Storage[]],
  dependencies: StorageContext,
  signal: AbortSignal,
): Promise<Attachment> {
  const image = parseImage(storages)
  const { mountPoint, fsGroup } = image
  const { id, folder } = await placeOf(mountPoint, dependencies)
  return undoOnFailure(dependencies.log, async (onRemove) => {
    signal.throwIfAborted()
    const options = await mountLayers(image, { dependencies, signal, onRemove, folder, id })
    const overlay = { source: 'overlay', fstype: 'overlay', options: [...options], mountPoint, fsGroup }
    await mountStorage(overlay, dependencies, signal)
    return { mountPoint, kind: 'mount', keep: false, onRemove: () => onRemove.run() }
  })
}

async function placeOf(
  mountPoint: string,
  { bundlesRoot }: Pick<StorageContext, 'bundlesRoot'>,
): Promise<Pick<ImageMount, 'id' | 'folder'>> {
  const id = await shortHash(mountPoint)
  // No container id begins with a dot. The name is short because before Linux 6.7 all paths must fit into one page.
  return { id, folder: `${bundlesRoot}/.layers-${id}` }
}

async function removeLayers(mountPoint: string, dependencies: StorageContext): Promise<void> {
  const { id, folder } = await placeOf(mountPoint, dependencies)
  await clearFolder(dependencies.os, folder)
  await unmapStale(dependencies.os, `${MAPPED_PREFIX}${id}-`)
}

/** Returns the options of the overlay. */
async function mountLayers({ lowers, upper }: Image, imageMount: ImageMount): Promise<readonly string[]> {
  const { folder } = imageMount
  await makeFolder(folder, imageMount)
  await makeFolder(`${folder}/${EMPTY}`, imageMount)
  const paths: string[] = []
  for (const [index, layer] of lowers.entries()) paths.push(await mountLayer(layer, `${index}`, imageMount))
  const lowerdir = `lowerdir=${[...paths, `${folder}/${EMPTY}`].join(':')}`
  if (upper === undefined) return ['ro', lowerdir]
  const path = await mountUpper(upper, imageMount)
  const { upperdir, workdir } = await prepareUpper(path, upper.directories, imageMount.dependencies)
  return [lowerdir, `upperdir=${upperdir}`, `workdir=${workdir}`]
}

async function mountUpper(upper: UpperLayer, imageMount: ImageMount): Promise<string> {
  return mountLayer(upper, UPPER, imageMount, async (node) => {
    const { dependencies, signal } = imageMount
    if (upper.makesFilesystem) await makeFilesystem(dependencies.os.tools, node, signal)
  })
}

async function mountLayer(
  layer: Layer,
  name: string,
  imageMount: ImageMount,
  prepare: (node: string) => Promise<void> = async () => {},
): Promise<string> {
  const { dependencies, signal, onRemove, folder, id } = imageMount
  const type = name === UPPER ? 'ext4' : 'erofs'
  const node = await waitForLayerNode(
    layer,
    { ...dependencies, onRemove, name: `${MAPPED_PREFIX}${id}-${name}` },
    signal,
  )
  await prepare(node)
  const target = `${folder}/${name}`
  await makeFolder(target, imageMount)
  signal.throwIfAborted()
  try {
    await dependencies.os.mounts.mount({ source: node, target, type, ...layer.mount })
  } catch (error) {
    throw withHint(error, layer)
  }
  onRemove.add(`unmount ${target}`, () => dependencies.os.mounts.unmount(target))
  return target
}

async function makeFolder(path: string, { dependencies, onRemove }: ImageMount): Promise<void> {
  const { files } = dependencies.os
  await files.makeDirectory(path, 0o755)
  onRemove.add(`remove ${path}`, () => files.removeDirectory(path))
}

/** The file system sees a block that dm-verity rejects as an I/O error. */
function withHint(error: unknown, { source, partition, verity }: Layer): AgentError {
  const errno = errnoOf(error)
  const where = partition === undefined ? source : `${source}, partition ${partition}`
  const hint = verity !== undefined && errno === 'EIO' ? ': its data does not match the root hash' : ''
  const text = `layer ${where}: ${messageOf(error)}${hint}`
  return new AgentError('INTERNAL', text, { cause: error, ...(errno === undefined ? {} : { errno }) })
}

async function shortHash(text: string): Promise<string> {
  // Loaded on demand: few guests have such images, and node:crypto takes milliseconds to load.
  const { createHash } = await import('node:crypto')
  return createHash('sha256').update(text).digest('hex').slice(0, 8)
}

/** Returns the node of the layer's disk or partition, or of the dm-verity device `name` in front of it. */
async function waitForLayerNode(
  { disk, source, partition, verity }: Layer,
  request: StorageContext & { readonly name: string; readonly onRemove: UndoList },
  signal: AbortSignal,
): Promise<string> {
  const { os, hotplug, name, onRemove } = request
  const whole = await disk.waitFor(source, request, signal)
  const device = partition === undefined ? whole : await waitForPartition(hotplug, whole, partition, signal)
  return verity === undefined ? device : openVerity(os, { name, device, verity }, onRemove, signal)
}

interface UpperFolders {
  readonly upperdir: string
  readonly workdir: string
}

/**
 * Creates the host's folders and the overlay's two in the upper layer at `root`. Existing folders are kept, because the
 * disk may have been used before. Symbolic links are refused, because the disk's content is not trusted.
 */
async function prepareUpper(
  root: string,
  directories: readonly LayerDirectory[],
  { os: { files }, allowedRoots }: StorageContext,
): Promise<UpperFolders> {
  const folders = { upperdir: `${root}/upper`, workdir: `${root}/work` }
  for (const { path, mode, owner } of directories) {
    const folder = `${root}/${path}`
    await checkMountPoint(files, folder, allowedRoots)
    if ((await files.lstat(folder)) !== undefined) continue
    await files.makeDirectories(folder, 0o755)
    await files.chmod(folder, mode)
    if (owner !== undefined) await files.chown(folder, owner.uid, owner.gid)
  }
  for (const folder of Object.values(folders)) {
    await checkMountPoint(files, folder, allowedRoots)
    if ((await files.lstat(folder)) === undefined) await files.makeDirectory(folder, 0o755)
  }
  return folders
}

/** Attaches an image of a single layer; {@link mountImage} attaches images of several layers. */
export const erofsMultiLayer: StorageDriver = {
  attach: (storage, request, signal) => mountImage([storage], request, signal),

  restore: async ({ mountPoint }, _attached, request) => ({
    onRemove: () => removeLayers(mountPoint, request),
  }),
}
