import { createHash, type Hash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { type Chunks, decompressed } from './decompress.ts'
import type { Disk } from './disk.ts'
import { type DiskRecord, readRecord, writeRecord } from './disk-record.ts'
import { type DownloadState, download, type Tries } from './download.ts'
import {
  type Compression,
  checkRawHead,
  checkRawTail,
  compressionOf,
  HEAD_BYTES,
  TAIL_BYTES,
} from './image-format.ts'
import { ImageChanged, type OpenImage } from './image-source.ts'
import type { ImageUrl } from './image-url.ts'
import type { RootDiskLimits } from './limits.ts'

export interface ImageProgress {
  /** Of the URL, those of a resumed preparation included. */
  readonly receivedBytes: number
  /** Of the URL, when the server tells. */
  readonly totalBytes: number | undefined
  /** Of the disk. */
  readonly writtenBytes: number
}

export interface PreparedDisk {
  /** Of the image on the disk, decompressed. */
  readonly bytes: number
  /** Of the bytes at the URL, if the URL has a digest. */
  readonly sha256: string | undefined
}

const BLOCK_BYTES = 1 << 20
const SECTOR_BYTES = 512

/** The writing of one image to an open disk, with its record. */
export class DiskWriting {
  readonly #image: ImageUrl
  readonly #disk: Disk
  readonly #stateFile: string
  readonly #limits: RootDiskLimits
  readonly #progress: (progress: ImageProgress) => void
  /** Whether the record says that the disk is unfinished. */
  #hasBegun = false
  #grows: boolean
  #isSparse: boolean
  /** undefined when the URL has no digest, because that takes as long as the download. */
  #hash: Hash | undefined
  #crc = 0
  #from: DownloadState = { position: 0, validator: undefined, totalBytes: undefined }
  #written = 0
  /** The position that the record has, or will have once `#saving` is done. */
  #saved = 0
  #saving: Promise<void> = Promise.resolve()

  constructor(given: {
    readonly image: ImageUrl
    readonly disk: Disk
    readonly stateFile: string
    readonly limits: RootDiskLimits
    readonly progress: ((progress: ImageProgress) => void) | undefined
  }) {
    this.#image = given.image
    this.#disk = given.disk
    this.#stateFile = given.stateFile
    this.#limits = given.limits
    this.#progress = given.progress ?? (() => {})
    this.#grows = given.disk.sizeBytes === undefined
    this.#isSparse = !given.disk.hasContent
    this.#hash = newHash(given.image)
  }

  /** Goes on behind what an earlier process has written, if that is still on the disk. */
  async resume(signal: AbortSignal): Promise<void> {
    const record = await readRecord(this.#stateFile)
    if (record?.state !== 'unfinished' || this.#disk.sizeBytes === undefined) return
    this.#grows = record.grows
    this.#isSparse = record.isSparse
    if (record.identity !== this.#image.identity || record.position === 0) return
    if (!(await this.#isOnDisk(record, signal))) return this.beginAnew()
    // Something else may have been written behind it.
    if (this.#isSparse) await this.#disk.cut(record.position, this.#sizeBytes)
    this.#from = {
      position: record.position,
      validator: record.validator,
      totalBytes: record.totalBytes,
    }
    this.#written = record.position
    this.#saved = record.position
    this.#hasBegun = true
  }

  async #isOnDisk({ position, crc }: DiskRecord, signal: AbortSignal): Promise<boolean> {
    for (let at = 0; at < position; at += BLOCK_BYTES) {
      signal.throwIfAborted()
      this.#count(await this.#disk.read(at, Math.min(BLOCK_BYTES, position - at)))
    }
    return this.#crc === crc
  }

  #count(bytes: Buffer): void {
    this.#hash?.update(bytes)
    this.#crc = crc32(bytes, this.#crc)
  }

  beginAnew(): void {
    this.#hash = newHash(this.#image)
    this.#crc = 0
    this.#from = { position: 0, validator: undefined, totalBytes: undefined }
    this.#written = 0
    this.#saved = 0
    this.#hasBegun = false
  }

  /** Writes what is missing. Throws {@link ImageChanged} when that needs another beginning. */
  async finish(openImage: OpenImage, tries: Tries, signal: AbortSignal): Promise<PreparedDisk> {
    try {
      const chunks = download(this.#image, openImage, this.#from, { tries, limits: this.#limits, signal })
      await this.#store(this.#hashed(chunks))
      await this.#saving
      const prepared = await this.#checked()
      if (this.#grows) await this.#disk.cut(prepared.bytes)
      await this.#disk.sync()
      await this.#record({ state: 'prepared', position: 0, ...prepared })
      return prepared
    } catch (error) {
      await this.#saving.catch(() => {})
      if (this.#hasBegun && condemns(error)) await this.#record({ position: 0 })
      throw error
    }
  }

  async *#hashed(chunks: Chunks): Chunks {
    for await (const chunk of chunks) {
      this.#count(chunk)
      yield chunk
    }
  }

  async #store(chunks: Chunks): Promise<void> {
    if (this.#from.position > 0) return await this.#write(chunks, true)
    const { head, all } = await withHead(chunks)
    const compression = compressionOf(head)
    if (compression === undefined) {
      checkRawHead(head, this.#image.shown)
      return await this.#write(this.#limited(all, this.#limitBytes), true)
    }
    // No compression makes its input longer by more than a sixty-fourth.
    const most = this.#limitBytes + this.#limitBytes / 64 + HEAD_BYTES
    await this.#decompress(compression, this.#limited(all, most))
  }

  async #decompress(compression: Compression, chunks: Chunks): Promise<void> {
    try {
      const { head, all } = await withHead(decompressed(compression, chunks))
      checkRawHead(head, this.#image.shown)
      await this.#write(all, false)
    } catch (error) {
      if (!/^(Z|ZSTD|ERR_ZSTD|ERR_ZLIB)_/.test(errnoOf(error) ?? '')) throw error
      throw this.#fault(`${compression}: ${messageOf(error)}`)
    }
  }

  async *#limited(chunks: Chunks, mostBytes: number): Chunks {
    for await (const chunk of chunks) {
      if (Math.max(this.#from.position, this.#from.totalBytes ?? 0) > mostBytes) throw this.#tooLarge()
      yield chunk
    }
  }

  /** Writes a raw image from `#written` on. */
  async #write(chunks: Chunks, isResumable: boolean): Promise<void> {
    let [block, next] = [Buffer.allocUnsafe(BLOCK_BYTES), Buffer.allocUnsafe(BLOCK_BYTES)]
    let [filled, inFlight] = [0, Promise.resolve()]
    const flush = async () => {
      await inFlight
      const [at, data] = [this.#written, block.subarray(0, filled)]
      if (at + data.length > this.#limitBytes) throw this.#tooLarge()
      if (!this.#hasBegun) await this.#begin()
      inFlight = this.#disk.write(at, data, this.#isSparse)
      inFlight.catch(() => {})
      this.#written += filled
      filled = 0
      ;[block, next] = [next, block]
      this.#progress({
        receivedBytes: this.#from.position,
        totalBytes: this.#from.totalBytes,
        writtenBytes: this.#written,
      })
    }
    try {
      for await (const chunk of chunks) {
        for (let done = 0; done < chunk.length; ) {
          const copied = chunk.copy(block, filled, done)
          done += copied
          filled += copied
          if (filled === BLOCK_BYTES) await flush()
        }
        if (isResumable && this.#from.position - this.#saved >= this.#limits.checkpointBytes) {
          await flush()
          await inFlight
          await this.#checkpoint()
        }
      }
      if (filled > 0) await flush()
    } finally {
      await inFlight
    }
  }

  /** Records all that is written, once it is durable. The writing goes on meanwhile. */
  async #checkpoint(): Promise<void> {
    await this.#saving
    if (this.#from.validator === undefined) return
    // Zeros at the end are not written, and yet a resumption reads them.
    if (this.#grows) await this.#disk.cut(this.#written)
    this.#saved = this.#written
    const saved = { position: this.#written, crc: this.#crc }
    this.#saving = this.#disk.sync().then(() => this.#record(saved))
    this.#saving.catch(() => {})
  }

  /** Before the first byte is written. */
  async #begin(): Promise<void> {
    await this.#record({ position: 0 })
    if (this.#isSparse) await this.#disk.cut(0, this.#sizeBytes)
    this.#hasBegun = true
  }

  async #checked(): Promise<PreparedDisk> {
    const sha256 = this.#hash?.digest('hex')
    const bytes = this.#written
    if (this.#image.sha256 !== sha256) {
      throw this.#fault(`sha256 ${sha256}, want ${this.#image.sha256}`)
    }
    if (bytes === 0) throw this.#fault('is empty, want a disk')
    if (bytes % SECTOR_BYTES !== 0) {
      throw this.#fault(`${bytes} bytes, want a disk, which has a multiple of ${SECTOR_BYTES} bytes`)
    }
    checkRawTail(await this.#disk.read(bytes - TAIL_BYTES, TAIL_BYTES), this.#image.shown)
    return { bytes, sha256 }
  }

  #record(what: Partial<DiskRecord>): Promise<void> {
    return writeRecord(this.#stateFile, {
      version: 1,
      state: 'unfinished',
      url: this.#image.shown,
      identity: this.#image.identity,
      grows: this.#grows,
      isSparse: this.#isSparse,
      position: 0,
      crc: 0,
      validator: this.#from.validator,
      totalBytes: this.#from.totalBytes,
      bytes: 0,
      sha256: undefined,
      ...what,
    })
  }

  get #sizeBytes(): number | undefined {
    return this.#grows ? undefined : this.#disk.sizeBytes
  }

  get #limitBytes(): number {
    return this.#sizeBytes ?? this.#limits.imageBytes
  }

  #tooLarge(): AgentError {
    const what = this.#grows ? 'the limit' : `the size of ${this.#disk.path}`
    return new AgentError(
      'RESOURCE_EXHAUSTED',
      `${this.#image.shown}: is larger than ${this.#limitBytes} bytes, ${what}`,
    )
  }

  #fault(what: string): AgentError {
    return new AgentError('FAILED_PRECONDITION', `${this.#image.shown}: ${what}`)
  }
}

function newHash({ sha256 }: ImageUrl): Hash | undefined {
  return sha256 === undefined ? undefined : createHash('sha256')
}

/** Whether an error says that what has come is of no use, so that a later preparation begins anew. */
function condemns(error: unknown): boolean {
  if (!(error instanceof AgentError) || error.errno !== undefined) return false
  return ['FAILED_PRECONDITION', 'INVALID_ARGUMENT', 'RESOURCE_EXHAUSTED'].includes(error.code)
}

/** Takes the first bytes, at least HEAD_BYTES unless there are fewer, and gives all again. */
async function withHead(chunks: Chunks): Promise<{ readonly head: Buffer; readonly all: Chunks }> {
  let head: Buffer = Buffer.alloc(0)
  while (head.length < HEAD_BYTES) {
    const { done, value } = await chunks.next()
    if (done === true) break
    head = Buffer.concat([head, value])
  }
  return { head, all: following(head, chunks) }
}

async function* following(head: Buffer, chunks: Chunks): Chunks {
  try {
    yield head
    yield* chunks
  } finally {
    await chunks.return()
  }
}
