import { errnoOf } from '../base/errors.ts'
import type { Files } from '../os/files/files.ts'

/**
 * The device node of the disk that sysfs shows at `disk` (`…/block/vdb`), or what is missing. The kernel shows a disk before
 * it creates the node, and an earlier disk may have left a node of this name.
 */
export async function getBlockNode(
  files: Files,
  disk: string,
): Promise<{ readonly found: string } | { readonly missing: string }> {
  const node = `/dev/${disk.slice(disk.lastIndexOf('/') + 1)}`
  return (await files.isBlockNodeOf(node, disk)) ? { found: node } : { missing: `device node ${node}` }
}

/** The text of a short sysfs file without its line break; undefined when the file or its device is gone. */
export async function readIfPresent(
  files: Pick<Files, 'readText'>,
  path: string,
): Promise<string | undefined> {
  try {
    return (await files.readText(path)).trim()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENODEV') return undefined
    throw error
  }
}
