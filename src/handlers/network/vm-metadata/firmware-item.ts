import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Files } from '../../../os/files/files.ts'

/** The tree in which the kernel's qemu_fw_cfg driver shows what the host has put into the machine's firmware. */
export interface FirmwareTree {
  readonly files: Pick<Files, 'list' | 'lstat' | 'readBytes' | 'readText' | 'stat'>
  /** `/sys/firmware/qemu_fw_cfg`, or a folder that stands for it. */
  readonly root: string
}

/** What there is to read from: the driver makes `root` by itself, and what is in it only for a device. */
export type FirmwareState = 'ready' | 'no driver' | 'no device'

/** Many times what VM metadata can need. */
const MAX_ITEM_BYTES = 64 * 1024

/** Why there may be no item to find, or `ready`. */
export async function firmwareState({ files, root }: FirmwareTree): Promise<FirmwareState> {
  if ((await files.stat(root)) === undefined) return 'no driver'
  return (await files.stat(`${root}/by_key`)) === undefined ? 'no device' : 'ready'
}

/**
 * The content of the item with this name; undefined when the host gave none. Throws INTERNAL when it is larger than
 * 64 KiB, or not as long as its `size` says.
 */
export async function readFirmwareItem(tree: FirmwareTree, name: string): Promise<Uint8Array | undefined> {
  const named = `${tree.root}/by_name/${name}`
  const size = await sizeOf(tree, named)
  if (size !== undefined) return readItem(tree, name, { folder: named, size })
  const folder = await hiddenFolder(tree, name)
  if (folder === undefined) return undefined
  return readItem(tree, name, { folder, size: (await sizeOf(tree, folder)) ?? 0 })
}

async function readItem(
  { files }: FirmwareTree,
  name: string,
  { folder, size }: { readonly folder: string; readonly size: number },
): Promise<Uint8Array> {
  if (!(size <= MAX_ITEM_BYTES)) {
    throw new AgentError('INTERNAL', `firmware item ${name}: ${size} bytes are more than ${MAX_ITEM_BYTES}`)
  }
  // In one go: the device has no position, so each read begins at the front and skips (qemu_fw_cfg.c).
  const bytes = await files.readBytes(`${folder}/raw`)
  if (bytes.length === size) return bytes
  throw new AgentError('INTERNAL', `firmware item ${name}: ${bytes.length} bytes of ${size} could be read`)
}

/** The item's length, for which `stat` of `raw` shows 0; undefined where there is no item. */
async function sizeOf({ files }: FirmwareTree, folder: string): Promise<number | undefined> {
  try {
    return Number(await files.readText(`${folder}/size`))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** Where the item is when `by_name` does not show it. */
async function hiddenFolder(tree: FirmwareTree, name: string): Promise<string | undefined> {
  if (!(await mayBeHidden(tree, name))) return undefined
  const { files, root } = tree
  const keys = await files.list(`${root}/by_key`)
  const matches = await Promise.all(keys.map((key) => hasName(tree, `${root}/by_key/${key}`, name)))
  const key = keys.find((_, index) => matches[index])
  return key === undefined ? undefined : `${root}/by_key/${key}`
}

/**
 * Whether the item may exist though `by_name` does not show it: the kernel leaves one out whose name is also a folder of
 * another one's, or goes on behind it. To look through all of `by_key` takes a few hundred system calls.
 */
async function mayBeHidden({ files, root }: FirmwareTree, name: string): Promise<boolean> {
  const parts = name.split('/')
  for (let length = 0; length <= parts.length; length++) {
    const found = await files.lstat([root, 'by_name', ...parts.slice(0, length)].join('/'))
    if (found === undefined) return length === 0
    if (found.kind === 'symlink') return true
  }
  return true
}

/** Names are bytes, and need not be text. */
async function hasName({ files }: FirmwareTree, folder: string, name: string): Promise<boolean> {
  return Buffer.from(`${name}\n`).equals(await files.readBytes(`${folder}/name`))
}
