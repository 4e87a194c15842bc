import { constants, type Stats } from 'node:fs'
import { open } from 'node:fs/promises'
import { AgentError } from '../../../base/errors.ts'
import type { Backends } from '../../qemu/machine/as-spec.ts'
import { pathOf } from '../../spec/component-path.ts'

/** Of a header of version 3, as QEMU's own description of the format has it. */
const HEADER_BYTES = 104
const BACKING_FILE = 8
const INCOMPATIBLE = 72
const DATA_FILE = 1n << 2n

/**
 * Throws FAILED_PRECONDITION for a qcow2 image that names another file: QEMU would open it, whatever file of this host that is,
 * and show it to the guest.
 */
export async function checkImages(backends: Backends): Promise<void> {
  for (const [key, backend] of Object.entries(backends))
    if (backend.kind === 'file' && backend.format === 'qcow2') await checkImage(key, backend.path)
}

/** The same for the image of one backend. */
export async function checkImage(key: string, path: string): Promise<void> {
  const { hasBacking, hasDataFile } = await namedBy(path)
  if (!hasBacking && !hasDataFile) return
  const text = `${path}: an image that names another file, want one that has all in itself`
  throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', key, 'file', 'path')}: ${text}`)
}

/** What a qcow2 image names. */
export async function namedBy(
  path: string,
): Promise<{ readonly hasBacking: boolean; readonly hasDataFile: boolean }> {
  // A FIFO would make it wait for a writer.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined)
  // QEMU tells of what is not there, or is no disk.
  if (file === undefined || !isDisk(await file.stat())) return { hasBacking: false, hasDataFile: false }
  const { buffer } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0)
  const hasDataFile = buffer.readUInt32BE(4) >= 3 && (buffer.readBigUInt64BE(INCOMPATIBLE) & DATA_FILE) !== 0n
  return { hasBacking: buffer.readBigUInt64BE(BACKING_FILE) !== 0n, hasDataFile }
}

function isDisk(status: Stats): boolean {
  return status.isFile() || status.isBlockDevice()
}
