import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Files } from '../../../os/files/files.ts'

/** The sysfs tree in which the kernel's qemu_fw_cfg driver shows the firmware items of the host. */
export interface FirmwareTree {
  readonly files: Pick<Files, 'list' | 'lstat' | 'readBytes' | 'readText' | 'stat'>
  /** `/sys/firmware/qemu_fw_cfg`, or a folder in its place. */
  readonly root: string
}

/** Whether items can be read: the driver creates `root`, and fills it only when there is a device. */
export type FirmwareState = 'ready' | 'no driver' | 'no device'

/** The size limit of an item, many times what VM metadata needs. */
const MAX_ITEM_BYTES = 64 * 1024

export async function firmwareState({ files, root }: FirmwareTree): Promise<FirmwareState> {
  if ((await files.stat(root)) === undefined) return 'no driver'
  return (await files.stat(`${root}/by_key`)) === undefined ? 'no device' : 'ready'
}

/** Undefined when the host gave none. Throws INTERNAL for an item above 64 KiB or shorter than its `size`. */
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
    throw new AgentError('INTERNAL', `firmware item ${name}: ${size} bytes, want at most ${MAX_ITEM_BYTES}`)
  }
  // Large reads are fewer: the device has no position, so each read starts at the front and skips (qemu_fw_cfg.c).
  const bytes = await files.readBytes(`${folder}/raw`)
  if (bytes.length === size) return bytes
  throw new AgentError('INTERNAL', `firmware item ${name}: read ${bytes.length} bytes, want ${size}`)
}

/** `stat` of `raw` shows 0, so this reads `size`. Undefined when there is no item. */
async function sizeOf({ files }: FirmwareTree, folder: string): Promise<number | undefined> {
  try {
    return Number(await files.readText(`${folder}/size`))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** The folder in `by_key` of an item that `by_name` does not show. */
async function hiddenFolder(tree: FirmwareTree, name: string): Promise<string | undefined> {
  if (!(await mayBeHidden(tree, name))) return undefined
  const { files, root } = tree
  const keys = await files.list(`${root}/by_key`)
  const matches = await Promise.all(keys.map((key) => hasName(tree, `${root}/by_key/${key}`, name)))
  const key = keys.find((_, index) => matches[index])
  return key === undefined ? undefined : `${root}/by_key/${key}`
}

/**
 * `by_name` lacks an item whose name is also a folder of another item's name, or continues it. This check avoids a
 * search of `by_key`, which takes a few hundred system calls.
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

/** Compares names as bytes, because they need not be valid text. */
async function hasName({ files }: FirmwareTree, folder: string, name: string): Promise<boolean> {
  return Buffer.from(`${name}\n`).equals(await files.readBytes(`${folder}/name`))
}
