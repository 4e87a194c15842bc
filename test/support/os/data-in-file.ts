import type { StoredBytes } from '../../../src/base/stored-bytes.ts'
import type { Streams } from '../../../src/os/streams/streams.ts'

/** What stands before the data. */
const HEAD_BYTES = 5000

export class DataInFile implements StoredBytes {
  readonly length: number
  readonly place: NonNullable<StoredBytes['place']>
  reads = 0
  readonly #streams: Streams

  /** A file that is cut has fewer bytes than `length`. */
  constructor(streams: Streams, bytes: Uint8Array, length = bytes.length) {
    this.length = length
    this.place = { fd: streams.memoryFile('frame'), offset: HEAD_BYTES }
    this.#streams = streams
    streams.writeAt(this.place.fd, HEAD_BYTES, bytes)
  }

  read(): Uint8Array {
    this.reads += 1
    return this.#streams.readAt(this.place.fd, HEAD_BYTES, this.length)
  }

  close(): void {
    this.#streams.close(this.place.fd)
  }
}
