import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, readdir, readlink, stat } from 'node:fs/promises'
import { AgentError } from '../../base/errors.ts'

/** What a file is, apart from where it has holes. */
export interface FileFacts {
  readonly sizeBytes: number
  /** SHA-256 of the blocks that are not zero, each with its number. */
  readonly digest: string
}

const BLOCK_BYTES = 64 * 1024
const CHUNK_BLOCKS = 32
const ZERO = Buffer.alloc(BLOCK_BYTES)

type Write = (data: Buffer, position: number) => Promise<unknown>

/** Reads a file whole; `write` gets the blocks that are not zero. */
async function scan(from: FileHandle, sizeBytes: number, write: Write): Promise<FileFacts> {
  const hash = createHash('sha256')
  await scanBlocks(from, sizeBytes, write, (number, block) => hash.update(number).update(block))
  return { sizeBytes, digest: hash.digest('hex') }
}

/** `seen` gets each block that is not zero, with its number. */
async function scanBlocks(
  from: FileHandle,
  sizeBytes: number,
  write: Write,
  seen: (number: Buffer, block: Buffer) => void = () => {},
): Promise<void> {
  const number = Buffer.alloc(8)
  const chunk = Buffer.allocUnsafe(BLOCK_BYTES * CHUNK_BLOCKS)
  for (let at = 0; at < sizeBytes; ) {
    const { bytesRead } = await from.read(chunk, 0, Math.min(chunk.length, sizeBytes - at), at)
    if (bytesRead === 0) throw new AgentError('FAILED_PRECONDITION', `${at} bytes, want ${sizeBytes}`)
    // Not to cut a block in two.
    const isWhole = bytesRead % BLOCK_BYTES === 0 || at + bytesRead === sizeBytes
    const length = isWhole ? bytesRead : bytesRead - (bytesRead % BLOCK_BYTES)
    if (length === 0) throw new AgentError('INTERNAL', `${bytesRead} bytes of a block at a time`)
    let first: number | undefined
    const flush = async (end: number) => {
      if (first !== undefined) await write(chunk.subarray(first, end), at + first)
      first = undefined
    }
    for (let offset = 0; offset < length; offset += BLOCK_BYTES) {
      const block = chunk.subarray(offset, Math.min(offset + BLOCK_BYTES, length))
      if (block.equals(block.length === BLOCK_BYTES ? ZERO : ZERO.subarray(0, block.length))) {
        await flush(offset)
        continue
      }
      number.writeBigUInt64LE(BigInt((at + offset) / BLOCK_BYTES))
      seen(number, block)
      first ??= offset
    }
    await flush(length)
    at += length
  }
}

/** Copies a file without what is zero; the new one is on the disk, and only its owner can read it. */
export async function copySparse(from: string, to: string): Promise<FileFacts> {
  await using source = await open(from, 'r')
  await using target = await open(to, 'wx', 0o600)
  const { size } = await source.stat()
  await target.truncate(size)
  const facts = await scan(source, size, (data, position) => writeWhole(target, data, position))
  await target.sync()
  return facts
}

/** The same for a guest that waits: the new file is not on the disk yet. */
export async function copyQuickly(from: string, to: string): Promise<void> {
  await using source = await open(from, 'r')
  await using target = await open(to, 'wx', 0o600)
  const { size } = await source.stat()
  await target.truncate(size)
  await scanBlocks(source, size, (data, position) => writeWhole(target, data, position))
}

/** Writes down on the disk what a file has. */
export async function syncFile(path: string): Promise<void> {
  await using file = await open(path, 'r')
  await file.sync()
}

/** Fills memory, all of which is zero so far. */
export async function fillMemory(from: string, to: string): Promise<void> {
  await using source = await open(from, 'r')
  await using target = await open(to, 'r+')
  const { size } = await source.stat()
  await scanBlocks(source, size, (data, position) => writeWhole(target, data, position))
}

/** Throws FAILED_PRECONDITION for what is no file or block device, and for more than `maxBytes`. Nothing is waited for but bytes. */
export async function factsOf(path: string, maxBytes = Number.POSITIVE_INFINITY): Promise<FileFacts> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  const status = await file.stat()
  checkHashed(path, status, maxBytes)
  return await scan(file, status.size, async () => {})
}

/** To be called before the file is opened, too: some devices act on that. */
export function checkHashed(
  path: string,
  status: { readonly size: number | bigint; isFile(): boolean; isBlockDevice(): boolean },
  maxBytes = Number.POSITIVE_INFINITY,
): void {
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
  if (!status.isFile() && !status.isBlockDevice()) throw fail('want a file or a block device')
  if (status.size > maxBytes) throw fail(`${status.size} bytes, want at most ${maxBytes}`)
}

const SAMPLES = 64
const SAMPLE_MS = 10_000

/**
 * SHA-256 of the first, the last and 62 further blocks of a disk, at places that its size decides; all of a small one. It tells one
 * disk from another, and not every change. Empty where reading takes longer than ten seconds.
 */
export async function sampleOf(path: string, sizeBytes: number): Promise<string> {
  const late = performance.now() + SAMPLE_MS
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  const hash = createHash('sha256')
  const last = Math.max(0, Math.ceil(sizeBytes / BLOCK_BYTES) - 1)
  const numbers = new Set(
    Array.from({ length: SAMPLES }, (_, index) => Math.round((index * last) / (SAMPLES - 1))),
  )
  const block = Buffer.alloc(BLOCK_BYTES)
  for (const number of numbers) {
    if (performance.now() > late) return ''
    const { bytesRead } = await file.read(block, 0, BLOCK_BYTES, number * BLOCK_BYTES)
    hash.update(block.subarray(0, bytesRead))
  }
  return hash.digest('hex')
}

async function writeWhole(target: FileHandle, data: Buffer, position: number): Promise<void> {
  for (let done = 0; done < data.length; ) {
    const { bytesWritten } = await target.write(data, done, data.length - done, position + done)
    done += bytesWritten
  }
}

/** QEMU's name for it (backends/hostmem-memfd.c). */
const MEMORY = '/memfd:memory-backend-memfd (deleted)'

/** The memory of a guest, as a file of its QEMU; undefined where it is not one file of that size. */
export async function memoryOf(pid: number, sizeBytes: number): Promise<string | undefined> {
  const folder = `/proc/${pid}/fd`
  const found: string[] = []
  for (const name of await readdir(folder).catch(() => [])) {
    const path = `${folder}/${name}`
    if ((await readlink(path).catch(() => '')) === MEMORY) found.push(path)
  }
  const [only, ...others] = found
  if (only === undefined || others.length > 0) return undefined
  return (await stat(only)).size === sizeBytes ? only : undefined
}
