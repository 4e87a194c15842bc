import { constants } from 'node:fs'
import { open, readFile, stat } from 'node:fs/promises'
import { AgentError } from '../../../base/errors.ts'
import type { Layer } from '../../../gen/microvm/instance/v1/instance.ts'
import { pathOf } from '../../spec/component-path.ts'
import { layerPath } from './layers.ts'
import { readLuksHeader } from './luks-header.ts'

/** The unit of a disk. */
const SECTOR = 512

/**
 * Throws FAILED_PRECONDITION naming the backend and the file when one of the layers is gone, or when the file below them
 * became smaller: the guest would read other bytes than it wrote.
 */
export async function checkLayers(folder: string, layers: readonly Layer[]): Promise<void> {
  for (const layer of layers) {
    const { id, backend, parent } = layer
    const path = layerPath(folder, id)
    const status = await stat(path).catch(() => undefined)
    if (status?.isFile() !== true) {
      const text = `${path}: missing, want the file with what was written since a snapshot`
      throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', backend)}: layer ${id}: ${text}`)
    }
    if (parent === 0) await checkBase(layer)
  }
}

/** Throws FAILED_PRECONDITION when the file below the layers is missing or became smaller. */
export async function checkBase(layer: Layer): Promise<void> {
  const { backend, base, sizeBytes } = layer
  const size = await sizeOfBase(layer)
  if (size >= sizeBytes) return
  const text = `${base} has ${size} bytes, want at least ${sizeBytes}: snapshots are on it`
  throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', backend, 'file', 'path')}: ${text}`)
}

/** The bytes of the disk in the file below layers. */
export async function sizeOfBase({
  base,
  qcow2Base,
  secret,
}: Pick<Layer, 'base' | 'qcow2Base' | 'secret'>): Promise<number> {
  if (qcow2Base) return await sizeOfImage(base)
  const size = await sizeOf(base)
  return secret === '' ? size : size - (await readLuksHeader(base)).payloadOffset
}

/** The bytes of the disk in a file or block device, in whole sectors as QEMU counts them. */
async function sizeOf(path: string): Promise<number> {
  const status = await stat(path).catch((error) => {
    throw new AgentError('FAILED_PRECONDITION', `${path}: ${error.code}`)
  })
  if (!status.isBlockDevice()) return Math.ceil(status.size / SECTOR) * SECTOR
  const [major, minor] = deviceNumbers(status.rdev)
  return Number(await readFile(`/sys/dev/block/${major}:${minor}/size`, 'utf8')) * SECTOR
}

/** The bytes of the disk in a qcow2 image, by its header (QEMU, interop/qcow2.txt). */
async function sizeOfImage(path: string): Promise<number> {
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
  // A FIFO would make it wait for a writer.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error) => {
    throw fail(error.code)
  })
  const { buffer, bytesRead } = await file.read(Buffer.alloc(32), 0, 32, 0)
  if (bytesRead === 32 && buffer.toString('latin1', 0, 4) === 'QFI\xfb')
    return Number(buffer.readBigUInt64BE(24))
  throw fail('not a qcow2 image')
}

/** As glibc's major(3) and minor(3). */
function deviceNumbers(device: number): readonly [major: number, minor: number] {
  const bits = BigInt(device)
  const major = ((bits >> 8n) & 0xfffn) | ((bits >> 32n) & ~0xfffn)
  const minor = (bits & 0xffn) | ((bits >> 12n) & ~0xffn)
  return [Number(major), Number(minor)]
}
