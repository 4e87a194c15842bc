import { AgentError } from '../../../../base/errors.ts'
import type { UndoList } from '../../../../base/undo.ts'
import type { Os } from '../../../../os/os.ts'
import type { LayerVerity } from './parse-image.ts'
import { SUPERBLOCK_BYTES, verityTarget } from './verity-superblock.ts'

/**
 * Puts dm-verity in front of a device, and returns the node through which each read is checked; `undo` gets the way
 * back. Throws UNIMPLEMENTED where the kernel has no dm-verity, INTERNAL for a superblock that is none. A wrong root hash
 * shows with the first read.
 */
export async function openVerity(
  { blockDevices, files, tools }: Pick<Os, 'blockDevices' | 'files' | 'tools'>,
  { name, device, verity }: { readonly name: string; readonly device: string; readonly verity: LayerVerity },
  undo: UndoList,
  signal: AbortSignal,
): Promise<string> {
  if ((await files.stat('/sys/module/dm_verity')) === undefined) {
    const result = await tools.run(['/sbin/modprobe', '--', 'dm-verity'], { signal })
    if (result.exitCode !== 0) {
      const text = `option X-kata.dmverity-enabled: this guest's kernel has no dm-verity: ${result.stderr.trim()}`
      throw new AgentError('UNIMPLEMENTED', text)
    }
  }
  const superblock = await blockDevices.read(device, verity.hashOffsetBytes, SUPERBLOCK_BYTES)
  const node = await blockDevices.map(name, verityTarget(device, superblock, verity))
  undo.add(`unmap ${name}`, () => blockDevices.unmap(name))
  return node
}
