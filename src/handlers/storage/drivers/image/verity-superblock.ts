import { AgentError } from '../../../../base/errors.ts'
import type { MappedTarget } from '../../../../os/devices/device-mapper-message.ts'
import type { LayerVerity } from './parse-image.ts'

/** The superblock of dm-verity as cryptsetup writes it: how long it is, and where its fields are. */
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
const SECTOR_BYTES = 512n

/**
 * The target of the device mapper for a device that holds data, superblock and hash tree (kernel documentation, verity).
 * Throws INTERNAL, naming `device`, for a superblock that is none or does not go with what the host says. Nothing in
 * it is trusted: whatever it says, the root hash decides.
 */
export function verityTarget(device: string, superblock: Uint8Array, verity: LayerVerity): MappedTarget {
  const { rootHash, hashOffsetBytes } = verity
  const refuse = (reason: string): never => {
    throw new AgentError('INTERNAL', `${device}: dm-verity at ${hashOffsetBytes}: ${reason}`)
  }
  const bytes = Buffer.from(superblock)
  if (bytes.length < SUPERBLOCK_BYTES || bytes.toString('latin1', 0, SIGNATURE.length) !== SIGNATURE) {
    refuse('there is no superblock')
  }
  if (bytes.readUInt32LE(FIELDS.version) !== 1) refuse('the superblock has another version than 1')
  const dataBlockSize = bytes.readUInt32LE(FIELDS.dataBlockSize)
  const hashBlockSize = bytes.readUInt32LE(FIELDS.hashBlockSize)
  if (!isBlockSize(dataBlockSize) || !isBlockSize(hashBlockSize)) refuse('the superblock has no block sizes')
  const dataBytes = bytes.readBigUInt64LE(FIELDS.dataBlocks) * BigInt(dataBlockSize)
  if (dataBytes === 0n || dataBytes > BigInt(hashOffsetBytes)) refuse('the data does not end before it')
  const algorithm = textAt(bytes, FIELDS.algorithm)
  if (!/^[a-z0-9-]+$/.test(algorithm)) refuse('the superblock names no hash')
  const salt = saltOf(bytes)
  if (salt === undefined) refuse('the salt is too long')
  if (verity.salt !== undefined && verity.salt.toLowerCase() !== salt)
    refuse('it has another salt than the host says')
  const parameters = [
    bytes.readUInt32LE(FIELDS.hashType),
    ...[device, device, dataBlockSize, hashBlockSize],
    bytes.readBigUInt64LE(FIELDS.dataBlocks),
    // The tree begins with the first whole block after the superblock.
    Math.ceil((hashOffsetBytes + SUPERBLOCK_BYTES) / hashBlockSize),
    ...[algorithm, rootHash.toLowerCase(), salt || '-'],
  ]
  return { type: 'verity', sectors: dataBytes / SECTOR_BYTES, parameters: parameters.join(' ') }
}

function isBlockSize(bytes: number): boolean {
  return bytes >= 512 && bytes <= 2 ** 19 && (bytes & (bytes - 1)) === 0
}

function textAt(bytes: Buffer, offset: number): string {
  return bytes.toString('latin1', offset, offset + ALGORITHM_BYTES).replace(/\0.*$/s, '')
}

/** Hexadecimal; undefined when its length cannot be. */
function saltOf(bytes: Buffer): string | undefined {
  const size = bytes.readUInt16LE(FIELDS.saltSize)
  return size > MAX_SALT_BYTES ? undefined : bytes.toString('hex', FIELDS.salt, FIELDS.salt + size)
}
