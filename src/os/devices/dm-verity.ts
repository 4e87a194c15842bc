import type { Files } from '../files/files.ts'
import type { Tools } from '../process/tools.ts'
import type { MappedTarget } from './device-mapper-message.ts'

const SECTOR_BYTES = 512n

/** A device that verifies every read (kernel documentation, verity). Block sizes are in bytes. */
export interface Verity {
  readonly hashType: number
  readonly data: string
  readonly dataBlockSize: number
  readonly dataBlocks: bigint
  /** The device node of the hash tree. */
  readonly hashes: string
  readonly hashBlockSize: number
  /** The hash block that the tree begins with. */
  readonly firstHashBlock: number
  readonly algorithm: string
  readonly rootHash: string
  /** Hexadecimal, or empty. */
  readonly salt: string
}

export function verityTarget(verity: Verity): MappedTarget {
  const parameters = [
    verity.hashType,
    verity.data,
    verity.hashes,
    verity.dataBlockSize,
    verity.hashBlockSize,
    verity.dataBlocks,
    verity.firstHashBlock,
    verity.algorithm,
    verity.rootHash,
    verity.salt || '-',
  ]
  const sectors = (verity.dataBlocks * BigInt(verity.dataBlockSize)) / SECTOR_BYTES
  return { type: 'verity', sectors, parameters: parameters.join(' ') }
}

/** Returns why the kernel has no dm-verity; undefined when it has. */
export async function loadDmVerity(
  { files, tools }: { readonly files: Pick<Files, 'stat'>; readonly tools: Tools },
  signal: AbortSignal,
): Promise<string | undefined> {
  if ((await files.stat('/sys/module/dm_verity')) !== undefined) return undefined
  const result = await tools.run(['/sbin/modprobe', '--', 'dm-verity'], { signal })
  return result.exitCode === 0 ? undefined : `the guest kernel has no dm-verity: ${result.stderr.trim()}`
}
