import { open, readFile, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { failed, fromNodeError } from '../../os/errors.ts'

/** What is durably known of a root disk. */
export interface DiskRecord {
  readonly version: 1
  readonly state: 'unfinished' | 'prepared'
  /** Without what may be secret. */
  readonly url: string
  readonly identity: string
  /** The disk had no size before, so that its size is the image's. */
  readonly grows: boolean
  /** The disk had no content before, so that zeros need not be written. */
  readonly isSparse: boolean
  /** Of a raw image that is unfinished: so many bytes are on the disk. */
  readonly position: number
  /** Of these bytes: CRC-32, which shows that they are still there. */
  readonly crc: number
  /** What the server calls this version of the image. */
  readonly validator: string | undefined
  /** Of the image at the URL, when it is known. */
  readonly totalBytes: number | undefined
  /** Of the image on a prepared disk. */
  readonly bytes: number
  /** Of the bytes at the URL of a prepared disk, if that was checked. */
  readonly sha256: string | undefined
}

/** undefined when there is no record. A damaged one is refused, because the disk may be prepared. */
export async function readRecord(path: string): Promise<DiskRecord | undefined> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw fromNodeError('read', path, error)
  })
  return text === undefined ? undefined : parse(path, text)
}

/** Replaces the record. When this returns, a crash of the machine keeps it. */
export async function writeRecord(path: string, record: DiskRecord): Promise<void> {
  const next = `${path}.new`
  const report = failed('write', path)
  const file = await open(next, 'w', 0o600).catch(report)
  try {
    await file.writeFile(`${JSON.stringify(record)}\n`).catch(report)
    await file.sync().catch(report)
  } finally {
    await file.close()
  }
  await rename(next, path).catch(report)
  await syncFolder(dirname(path))
}

export async function syncFolder(path: string): Promise<void> {
  const report = failed('sync', path)
  const folder = await open(path, 'r').catch(report)
  try {
    await folder.sync().catch(report)
  } finally {
    await folder.close()
  }
}

function parse(path: string, text: string): DiskRecord {
  try {
    const record: unknown = JSON.parse(text)
    if (isRecord(record)) return record
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
  }
  throw new AgentError('FAILED_PRECONDITION', `${path}: is not the record of a root disk`)
}

function isRecord(value: unknown): value is DiskRecord {
  if (typeof value !== 'object' || value === null) return false
  return 'version' in value && value.version === 1 && 'identity' in value && 'state' in value
}
