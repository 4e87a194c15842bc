import { AgentError } from '../../../../base/errors.ts'
import type { UndoList } from '../../../../base/undo.ts'
import type { MappedTarget } from '../../../../os/devices/device-mapper-message.ts'
import { loadDmVerity, verityTarget } from '../../../../os/devices/dm-verity.ts'
import type { Os } from '../../../../os/os.ts'
import type { LayerVerity } from './parse-image.ts'

/** The dm-verity superblock as cryptsetup writes it: its length, and the offsets of its fields. */
export const SUPERBLOCK_BYTES = 512
const SIGNATURE = 'verity\0\0'
const FIELDS = {
  version: 8,
  hashType: 12,
  algorithm: 32,
  dataBlockSize: 64,
  hashBlockSize: 68,
  dataBlocks: 72,
  saltSize: 80,
  salt: 88,
}
const ALGORITHM_BYTES = 32
const MAX_SALT_BYTES = 256

/**
 * The target for a device that holds data, superblock and hash tree (kernel documentation, verity). Throws INTERNAL for
 * an invalid superblock. It needs no trust, because every read is verified against the root hash.
 */
export function layerTarget(device: string, superblock: Uint8Array, verity: LayerVerity): MappedTarget {
  const { rootHash, hashOffsetBytes } = verity
  const refuse = (reason: string): never => {
    throw new AgentError('INTERNAL', `${device}: dm-verity at ${hashOffsetBytes}: ${reason}`)
  }
  const bytes = Buffer.from(superblock)
  if (bytes.length < SUPERBLOCK_BYTES || bytes.toString('latin1', 0, SIGNATURE.length) !== SIGNATURE) {
    refuse('no superblock')
  }
  if (bytes.readUInt32LE(FIELDS.version) !== 1) refuse('unknown superblock version, want 1')
  const dataBlockSize = bytes.readUInt32LE(FIELDS.dataBlockSize)
  const hashBlockSize = bytes.readUInt32LE(FIELDS.hashBlockSize)
  if (!isBlockSize(dataBlockSize) || !isBlockSize(hashBlockSize))
    refuse('invalid block sizes in the superblock')
  const dataBlocks = bytes.readBigUInt64LE(FIELDS.dataBlocks)
  const dataBytes = dataBlocks * BigInt(dataBlockSize)
  if (dataBytes === 0n || dataBytes > BigInt(hashOffsetBytes)) refuse('the data overlaps the superblock')
  const algorithm = textAt(bytes, FIELDS.algorithm)
  if (!/^[a-z0-9-]+$/.test(algorithm)) refuse('invalid hash name in the superblock')
  const salt = saltOf(bytes)
  if (salt === undefined) refuse('the salt is too long')
  if (verity.salt !== undefined && verity.salt.toLowerCase() !== salt)
    refuse('the salt differs from X-kata.dmverity.salt')
  return verityTarget({
    hashType: bytes.readUInt32LE(FIELDS.hashType),
    data: device,
    dataBlockSize,
    dataBlocks,
    hashes: device,
    hashBlockSize,
    // The tree begins with the first whole block after the superblock.
    firstHashBlock: Math.ceil((hashOffsetBytes + SUPERBLOCK_BYTES) / hashBlockSize),
    algorithm,
    rootHash: rootHash.toLowerCase(),
    salt: salt ?? '',
  })
}

function isBlockSize(bytes: number): boolean {
  return bytes >= 512 && bytes <= 2 ** 19 && (bytes & (bytes - 1)) === 0
}

function textAt(bytes: Buffer, offset: number): string {
  return bytes.toString('latin1', offset, offset + ALGORITHM_BYTES).replace(/\0.*$/s, '')
}

/** Hexadecimal; undefined when its length is invalid. */
function saltOf(bytes: Buffer): string | undefined {
  const size = bytes.readUInt16LE(FIELDS.saltSize)
  return size > MAX_SALT_BYTES ? undefined : bytes.toString('hex', FIELDS.salt, FIELDS.salt + size)
}

/**
 * Maps a dm-verity device in front of `device` and returns its node; `onRemove` unmaps it. Throws UNIMPLEMENTED when
 * the kernel has no dm-verity, INTERNAL for an invalid superblock. A wrong root hash only makes the first read fail.
 */
export async function openVerity(
  { blockDevices, files, tools }: Pick<Os, 'blockDevices' | 'files' | 'tools'>,
  { name, device, verity }: { readonly name: string; readonly device: string; readonly verity: LayerVerity },
  onRemove: UndoList,
  signal: AbortSignal,
): Promise<string> {
  const missing = await loadDmVerity({ files, tools }, signal)
  if (missing !== undefined) {
    throw new AgentError('UNIMPLEMENTED', `option X-kata.dmverity-enabled: ${missing}`)
  }
  const superblock = await blockDevices.read(device, verity.hashOffsetBytes, SUPERBLOCK_BYTES)
  const node = await blockDevices.map(name, layerTarget(device, superblock, verity))
  onRemove.add(`unmap ${name}`, () => blockDevices.unmap(name))
  return node
}

/** The name prefix of the devices that are mapped for layers. */
export const MAPPED_PREFIX = 'microvm-layers-'

const BLOCK = '/sys/block'

/** Unmaps the previous agent's devices whose names begin with `prefix`. Nothing may be mounted from them. */
export async function unmapStale(
  { blockDevices, files }: Pick<Os, 'blockDevices' | 'files'>,
  prefix: string = MAPPED_PREFIX,
): Promise<void> {
  for (const device of await files.list(BLOCK)) {
    const nameFile = `${BLOCK}/${device}/dm/name`
    if (!device.startsWith('dm-') || (await files.stat(nameFile)) === undefined) continue
    const name = (await files.readText(nameFile)).trim()
    if (name.startsWith(prefix)) await blockDevices.unmap(name)
  }
}
