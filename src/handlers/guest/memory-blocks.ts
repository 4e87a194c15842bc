import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'

const MEMORY = '/sys/devices/system/memory'

/** In bytes; 0 when the kernel cannot add memory. Throws INTERNAL for an invalid text in sysfs. */
export async function memoryBlockSize(files: Files): Promise<bigint> {
  const path = `${MEMORY}/block_size_bytes`
  if ((await files.stat(path)) === undefined) return 0n
  const text = (await files.readText(path)).trim()
  // Hexadecimal without 0x.
  if (!/^[0-9a-f]+$/i.test(text)) throw new AgentError('INTERNAL', `Invalid block size '${text}' in ${path}`)
  return BigInt(`0x${text}`)
}

/** Whether the kernel has the probe interface, which takes the addresses of added memory. */
export async function canProbeMemory(files: Files): Promise<boolean> {
  return (await files.stat(PROBE)) !== undefined
}

const PROBE = `${MEMORY}/probe`

/**
 * Tells the kernel of memory blocks at physical addresses. Throws FAILED_PRECONDITION without the probe interface,
 * INVALID_ARGUMENT for an address that is not the start of a block, INTERNAL with the address that the kernel refused.
 */
export async function probeMemory(files: Files, addresses: readonly bigint[]): Promise<void> {
  if (addresses.length === 0) return
  if (!(await canProbeMemory(files))) {
    throw new AgentError(
      'FAILED_PRECONDITION',
      `memory probe: the kernel has no ${PROBE}, because it detects added memory itself`,
    )
  }
  const blockSize = await memoryBlockSize(files)
  const misaligned = addresses.find((address) => blockSize > 0n && address % blockSize !== 0n)
  if (misaligned !== undefined) {
    const text = `memHotplugProbeAddr ${hex(misaligned)}: not a multiple of the block size ${hex(blockSize)}`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  for (const address of addresses) {
    try {
      await files.write(PROBE, hex(address))
    } catch (error) {
      throw new AgentError('INTERNAL', `probe memory at ${hex(address)}`, { cause: error })
    }
  }
}

function hex(address: bigint): string {
  return `0x${address.toString(16).toUpperCase()}`
}

/** Tries every offline block, then throws INTERNAL with those that stay offline. */
export async function onlineMemory(files: Files): Promise<void> {
  const failures: unknown[] = []
  for (const name of await files.list(MEMORY)) {
    if (!/^memory[0-9]+$/.test(name)) continue
    await onlineBlock(files, `${MEMORY}/${name}`).catch((error) => failures.push(error))
  }
  if (failures.length === 0) return
  const text = `memory not brought online: ${failures.map(messageOf).join('; ')}`
  throw new AgentError('INTERNAL', text, { cause: failures[0] })
}

export async function onlineBlock(files: Files, folder: string): Promise<void> {
  const file = `${folder}/online`
  try {
    if ((await files.readText(file)).trim() === '0') await files.write(file, '1')
  } catch (error) {
    // The block was removed.
    if (errnoOf(error) !== 'ENOENT') throw error
  }
}
