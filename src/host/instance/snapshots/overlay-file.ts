import { mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Layer } from '../../../gen/microvm/instance/v1/instance.ts'
import { LAYERS_FOLDER, layerPath, mergedPath } from './layers.ts'
import { readLuksHeader } from './luks-header.ts'

const CLUSTER_BITS = 16
const CLUSTER = 2 ** CLUSTER_BITS
/** What a cluster of the second table maps. */
const L2_REACH = (CLUSTER / 8) * CLUSTER
/** QEMU takes a first table of at most 32 MiB, for a disk of 2 PiB. */
const MAX_TABLE_CLUSTERS = 512
/** Of the header without extensions. */
const HEADER_BYTES = 104
const CRYPT_LUKS = 2
/** The header extension that tells where the header of the encryption is. */
const CRYPT_HEADER = 0x0537_be77

/**
 * The bytes of an empty qcow2 image of version 3 (QEMU, interop/qcow2.txt), which names no other file: what is below
 * it, each who opens it has to know. Header, table and block of references, first table. With `luksHeader` it is encrypted as the image
 * is that has this header, by the same key.
 */
export function emptyOverlay(sizeBytes: number, luksHeader: Buffer = Buffer.alloc(0)): Buffer {
  const entries = Math.max(1, Math.ceil(sizeBytes / L2_REACH))
  const tableClusters = Math.ceil((entries * 8) / CLUSTER)
  if (tableClusters > MAX_TABLE_CLUSTERS)
    throw new AgentError('INVALID_ARGUMENT', `a disk of ${sizeBytes} bytes: too large for a snapshot`)
  const ownClusters = 3 + tableClusters
  const clusters = ownClusters + Math.ceil(luksHeader.length / CLUSTER)
  const image = Buffer.alloc(clusters * CLUSTER)
  image.write('QFI\xfb', 0, 'latin1')
  image.writeUInt32BE(3, 4)
  image.writeUInt32BE(CLUSTER_BITS, 20)
  image.writeBigUInt64BE(BigInt(sizeBytes), 24)
  image.writeUInt32BE(entries, 36)
  image.writeBigUInt64BE(BigInt(3 * CLUSTER), 40)
  image.writeBigUInt64BE(BigInt(CLUSTER), 48)
  image.writeUInt32BE(1, 56)
  // References of 2^4 bits.
  image.writeUInt32BE(4, 96)
  image.writeUInt32BE(HEADER_BYTES, 100)
  if (luksHeader.length > 0) {
    image.writeUInt32BE(CRYPT_LUKS, 32)
    image.writeUInt32BE(CRYPT_HEADER, HEADER_BYTES)
    image.writeUInt32BE(16, HEADER_BYTES + 4)
    image.writeBigUInt64BE(BigInt(ownClusters * CLUSTER), HEADER_BYTES + 8)
    image.writeBigUInt64BE(BigInt(luksHeader.length), HEADER_BYTES + 16)
    luksHeader.copy(image, ownClusters * CLUSTER)
  }
  image.writeBigUInt64BE(BigInt(2 * CLUSTER), CLUSTER)
  for (let cluster = 0; cluster < clusters; cluster++) image.writeUInt16BE(1, 2 * CLUSTER + 2 * cluster)
  return image
}

/** Makes the files of new layers. Once all are there, each is whole and on the disk. */
export async function makeOverlays(folder: string, layers: readonly Layer[]): Promise<void> {
  const made = await mkdir(join(folder, LAYERS_FOLDER), { mode: 0o700, recursive: true })
  for (const { base, id, secret, sizeBytes } of layers) {
    const path = layerPath(folder, id)
    const luksHeader = secret === '' ? undefined : (await readLuksHeader(base)).bytes
    try {
      await using file = await open(`${path}.new`, 'w', 0o600)
      await file.writeFile(emptyOverlay(Number(sizeBytes), luksHeader))
      await file.sync()
      await rename(`${path}.new`, path)
    } catch (error) {
      throw fileError(path, error)
    }
  }
  await syncFolder(folder)
  if (made === undefined) return
  await using above = await open(folder)
  await above.sync()
}

/** Removes what there is of the files of layers. */
export async function removeFiles(folder: string, layers: readonly Pick<Layer, 'id'>[]): Promise<void> {
  for (const { id } of layers) {
    const path = layerPath(folder, id)
    for (const each of [path, `${path}.new`, mergedPath(folder, id)]) await rm(each, { force: true })
  }
}

/** Writes down which files the folder of the layers has. */
export async function syncFolder(folder: string): Promise<void> {
  await using opened = await open(dirname(layerPath(folder, 0)))
  await opened.sync()
}

/** RESOURCE_EXHAUSTED with the path when the disk of the state folder is full. */
export function fileError(path: string, error: unknown): unknown {
  const errno = errnoOf(error)
  if (errno === undefined) return error
  const code = ['ENOSPC', 'EDQUOT', 'EFBIG'].includes(errno) ? 'RESOURCE_EXHAUSTED' : 'INTERNAL'
  return new AgentError(code, `${path}: ${errno}`, { cause: error })
}
