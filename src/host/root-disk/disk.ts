import { constants, type Stats } from 'node:fs'
import { type FileHandle, lstat, open, readFile } from 'node:fs/promises'
import { constants as os } from 'node:os'
import { dirname } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { checkErrno, failed, fromNodeError } from '../../os/errors.ts'
import { deviceNumbers, kindOfMode } from '../../os/files/file-status.ts'
import { findAgentFolder, loadNative } from '../../os/native.ts'
import { syncFolder } from './disk-record.ts'

/**
 * The bytes that QEMU locks for the permissions of an image and for those that it shares (RAW_LOCK_PERM_BASE and
 * RAW_LOCK_SHARED_BASE in block/file-posix.c), so that neither QEMU nor another preparation has the disk at a time.
 */
const LOCK_START = 100
const LOCK_BYTES = 200

const SECTOR_BYTES = 512

/** Zeros are left out of a sparse disk in parts of this size. */
const HOLE_BYTES = 1 << 16
const ZEROS = Buffer.alloc(HOLE_BYTES)

/** An open, locked disk. */
export interface Disk {
  readonly path: string
  /** undefined when the disk has no size yet. */
  readonly sizeBytes: number | undefined
  readonly hasContent: boolean
  read(position: number, bytes: number): Promise<Buffer>
  /** With `isSparse`, parts of zeros are not written. */
  write(position: number, data: Buffer, isSparse: boolean): Promise<void>
  /** Forgets everything behind `position`; the size becomes `sizeBytes`, or `position`. For regular files. */
  cut(position: number, sizeBytes?: number): Promise<void>
  sync(): Promise<void>
  close(): Promise<void>
}

/** Whether there is a disk. Throws FAILED_PRECONDITION for what is neither a regular file nor a block device. */
export async function findDisk(path: string): Promise<Stats | undefined> {
  const status = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw fromNodeError('look at', path, error)
  })
  if (status !== undefined && !status.isFile() && !status.isBlockDevice()) {
    throw refused(path, `is a ${kindOfMode(status.mode) ?? 'file'}, want a regular file or a block device`)
  }
  return status
}

/** Opens and locks the disk, and makes it when it does not exist. FAILED_PRECONDITION while another process has it. */
export async function openDisk(path: string): Promise<Disk> {
  const found = await findDisk(path)
  // O_EXCL refuses a block device that is mounted or part of another one (man 2 open).
  const how = found === undefined ? constants.O_CREAT | constants.O_EXCL : 0
  const flags = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK | how
  const exclusive = found?.isBlockDevice() === true ? constants.O_EXCL : 0
  const file = await open(path, flags | exclusive, 0o600).catch((error: unknown) => {
    if (errnoOf(error) === 'EBUSY') throw inUse(path)
    throw fromNodeError('open', path, error)
  })
  try {
    lock(path, file)
    if (found === undefined) await syncFolder(dirname(path))
    return await lockedDisk(path, file)
  } catch (error) {
    await file.close()
    throw error
  }
}

function lock(path: string, file: FileHandle): void {
  const native = loadNative(findAgentFolder(import.meta.filename))
  checkLock(path, native.lockRange(file.fd, LOCK_START, LOCK_BYTES))
}

/** Throws FAILED_PRECONDITION when the result is that another process has the lock, and a kernel error for another -errno. */
export function checkLock(path: string, result: number): void {
  if (LOCKED.has(-result)) throw inUse(path)
  checkErrno('lock', path, result)
}

const LOCKED: ReadonlySet<number> = new Set([os.errno.EAGAIN, os.errno.EACCES])

async function lockedDisk(path: string, file: FileHandle): Promise<Disk> {
  const status = await file.stat({ bigint: true })
  const isDevice = status.isBlockDevice()
  const sizeBytes = isDevice ? await deviceBytes(path, status.rdev) : Number(status.size)
  const report = failed('write', path)
  const put = async (position: number, data: Buffer) => {
    for (let done = 0; done < data.length; ) {
      const { bytesWritten } = await file
        .write(data, done, data.length - done, position + done)
        .catch((error: unknown) => {
          throw errnoOf(error) === 'ENOSPC' ? full(path) : fromNodeError('write', path, error)
        })
      done += bytesWritten
    }
  }
  return {
    path,
    sizeBytes: sizeBytes === 0 ? undefined : sizeBytes,
    hasContent: isDevice || status.blocks > 0n,
    read: async (position, bytes) => {
      const data = Buffer.allocUnsafe(bytes)
      const { bytesRead } = await file.read(data, 0, bytes, position).catch(failed('read', path))
      return data.subarray(0, bytesRead)
    },
    write: async (position, data, isSparse) => {
      if (!isSparse) return await put(position, data)
      for (const [start, end] of partsWithContent(data))
        await put(position + start, data.subarray(start, end))
    },
    cut: async (position, after = position) => {
      if (isDevice) return
      await file.truncate(position).catch(report)
      if (after !== position) await file.truncate(after).catch(report)
    },
    sync: () =>
      file.datasync().catch((error: unknown) => {
        throw errnoOf(error) === 'ENOSPC' ? full(path) : fromNodeError('sync', path, error)
      }),
    close: () => file.close(),
  }
}

async function deviceBytes(path: string, device: bigint): Promise<number> {
  const { major, minor } = deviceNumbers(device)
  const sectors = await readFile(`/sys/dev/block/${major}:${minor}/size`, 'utf8').catch(
    failed('size of', path),
  )
  const bytes = Number(sectors) * SECTOR_BYTES
  if (bytes === 0) throw refused(path, 'is a block device without a medium')
  return bytes
}

/** The start and end of each part that is not all zeros; neighbours are one part. */
function partsWithContent(data: Buffer): readonly (readonly [number, number])[] {
  const parts: [number, number][] = []
  for (let start = 0; start < data.length; start += HOLE_BYTES) {
    const end = Math.min(start + HOLE_BYTES, data.length)
    if (data.compare(ZEROS, 0, end - start, start, end) === 0) continue
    const last = parts.at(-1)
    if (last?.[1] === start) last[1] = end
    else parts.push([start, end])
  }
  return parts
}

function inUse(path: string): AgentError {
  return refused(path, 'is in use by another process, such as QEMU or another preparation')
}

function full(path: string): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', `${path}: no space left on its file system`, {
    errno: 'ENOSPC',
  })
}

function refused(path: string, what: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `${path}: ${what}`)
}
