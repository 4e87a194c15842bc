import { neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { type Disk, findDisk, openDisk } from './disk.ts'
import { readRecord } from './disk-record.ts'
import { DiskWriting, type ImageProgress, type PreparedDisk } from './disk-writing.ts'
import { Tries } from './download.ts'
import { fileSource } from './file-source.ts'
import { httpSource, ImageChanged } from './image-source.ts'
import { type ImageUrl, parseImageUrl } from './image-url.ts'
import { ROOT_DISK_LIMITS, type RootDiskLimits } from './limits.ts'

export interface RootDisk {
  /** http, https or file; `#sha256=HEX` is the digest of the bytes at the URL, as they are before decompression. */
  readonly url: string
  /** A regular file, which is made when it does not exist, or a block device. Its parent folder exists. */
  readonly disk: string
  /** The record of what is on the disk, a file that is made. It has to live as long as the disk: keep it beside. */
  readonly stateFile: string
  readonly limits?: Partial<RootDiskLimits>
  readonly progress?: (progress: ImageProgress) => void
  /** Ends the preparation; a later one goes on. */
  readonly signal?: AbortSignal
  /** Certificates of authorities in PEM, in place of Node's own list. */
  readonly ca?: string | Buffer
}

/** Of these first bytes of a disk, partition tables and file systems have some. */
const BEGIN_BYTES = 1 << 20

/**
 * Writes an image to a root disk. Once this returns, the disk is whole and durable. A disk that has been prepared from the
 * same URL, or from bytes with the same digest, is left as it is. Every failure is an AgentError, or the reason of `signal`; a next call then goes on.
 */
export async function prepareRootDisk(options: RootDisk): Promise<PreparedDisk> {
  const image = parseImageUrl(options.url)
  const known = await preparedDisk(options, image)
  if (known !== undefined) return known
  const disk = await openDisk(options.disk)
  try {
    // Another process may have prepared it before it let the disk go.
    const known = await preparedDisk(options, image)
    if (known !== undefined) return known
    await refuseContent(options, disk)
    return await prepare(options, image, disk)
  } finally {
    await disk.close()
  }
}

/** Throws FAILED_PRECONDITION when a preparation of the disk has begun and not ended: it must not boot. */
export async function refuseUnfinishedDisk({
  disk,
  stateFile,
}: Pick<RootDisk, 'disk' | 'stateFile'>): Promise<void> {
  const record = await readRecord(stateFile)
  if (record?.state === 'unfinished') {
    throw new AgentError('FAILED_PRECONDITION', `${disk}: only a part of ${record.url} is on it`)
  }
}

/** A disk without a record may have data of the user. */
async function refuseContent({ stateFile }: RootDisk, disk: Disk): Promise<void> {
  if (disk.sizeBytes === undefined || (await readRecord(stateFile)) !== undefined) return
  const begin = await disk.read(0, Math.min(disk.sizeBytes, BEGIN_BYTES))
  if (begin.every((byte) => byte === 0)) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `${disk.path}: has content and no record of an image, want it empty`,
  )
}

/** What is on a prepared disk. FAILED_PRECONDITION when that came from another URL. */
async function preparedDisk(
  { disk, stateFile }: RootDisk,
  { identity, sha256, shown }: ImageUrl,
): Promise<PreparedDisk | undefined> {
  const [record, found] = [await readRecord(stateFile), await findDisk(disk)]
  const isEmpty = found === undefined || (found.isFile() && found.size === 0)
  if (record?.state !== 'prepared' || isEmpty) return undefined
  const fault = (what: string) => new AgentError('FAILED_PRECONDITION', `${disk}: ${what}`)
  if (found.isFile() && found.size < record.bytes)
    throw fault(`is smaller than when it was prepared from ${record.url}`)
  // Equal bytes, wherever they came from.
  const isEqual = sha256 !== undefined && sha256 === record.sha256
  if (record.identity !== identity && !isEqual) {
    const query = record.url === shown ? ' with this query' : ''
    throw fault(`was prepared from ${record.url}, not from ${shown}${query}`)
  }
  if (sha256 !== undefined && !isEqual) {
    throw fault(`was prepared from ${shown} with ${record.sha256 ?? 'no'} digest, want sha256 ${sha256}`)
  }
  return { bytes: record.bytes, sha256: record.sha256 }
}

async function prepare(options: RootDisk, image: ImageUrl, disk: Disk): Promise<PreparedDisk> {
  const limits = { ...ROOT_DISK_LIMITS, ...options.limits }
  const signal = options.signal ?? neverAborted
  const openImage =
    image.url.protocol === 'file:' ? fileSource(image, options.disk) : httpSource(image, limits, options.ca)
  const { stateFile, progress } = options
  const writing = new DiskWriting({ image, disk, stateFile, limits, progress })
  const tries = new Tries(limits, image.shown, signal)
  await writing.resume(signal)
  for (;;) {
    try {
      return await writing.finish(openImage, tries, signal)
    } catch (error) {
      if (!(error instanceof ImageChanged)) throw error
      await tries.next(error.message)
      writing.beginAnew()
    }
  }
}
