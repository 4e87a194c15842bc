import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import type { StoredBytes } from '../../base/stored-bytes.ts'
import { FRAME_HEADER_BYTES } from './frame.ts'
import { decodeRequest, type TtrpcRequest } from './messages.ts'

/** The frames of a connection that come in files in memory, because they are long (docs/broker.md). */
export interface FrameFiles {
  /** Takes the file of a request. Undefined if the broker has sent none. The caller closes it. */
  take(number: bigint): number | undefined
  read(fd: number, offset: number, bytes: number): Buffer
  close(fd: number): void
}

/** Of the fields around the data, callers fill some hundred bytes. */
const MOST_AROUND = 4096

/** A frame in a file, with one field of its request left there. */
export class StoredRequest {
  readonly request: TtrpcRequest
  readonly data: StoredBytes
  readonly #close: () => void
  #place: StoredBytes['place']

  private constructor(
    files: FrameFiles,
    { fd, request, start, end }: { fd: number; request: TtrpcRequest; start: number; end: number },
  ) {
    this.request = request
    this.#place = { fd, offset: start }
    this.#close = () => files.close(fd)
    const place = () => this.#place
    this.data = {
      length: end - start,
      get place() {
        return place()
      },
      read: () => {
        if (place() === undefined) throw new Error('the file of the request is closed')
        return files.read(fd, start, end - start)
      },
    }
  }

  /**
   * `dataFieldOf` returns the number of the field that the method takes from a file. Returns undefined if there is none,
   * or if the field is not where encoders put it, in the order of the numbers: such a frame must be read whole.
   */
  static of(
    files: FrameFiles,
    fd: number,
    frameBytes: number,
    dataFieldOf: (method: string) => number | undefined,
  ): StoredRequest | undefined {
    try {
      return StoredRequest.#split(files, fd, frameBytes, dataFieldOf)
    } catch {
      // The head ends before the data, or the frame is no protobuf; then the decoder of the whole frame says so.
      return undefined
    }
  }

  static #split(...[files, fd, frameBytes, dataFieldOf]: Parameters<typeof StoredRequest.of>) {
    const head = files.read(fd, FRAME_HEADER_BYTES, MOST_AROUND)
    const reader = new BinaryReader(head)
    const payloadTag = findField(reader, 3)
    const payloadBytes = reader.uint32()
    const payloadStart = reader.pos
    const { service, method } = decodeRequest(head.subarray(0, payloadTag))
    const dataField = dataFieldOf(`${service}/${method}`)
    if (dataField === undefined) return undefined
    const dataTag = findField(reader, dataField)
    const dataBytes = reader.uint32()
    const start = FRAME_HEADER_BYTES + reader.pos
    const end = FRAME_HEADER_BYTES + payloadStart + payloadBytes
    const restBytes = frameBytes - end
    if (start + dataBytes !== end || restBytes < 0 || restBytes > MOST_AROUND) return undefined
    const around = decodeRequest(
      Buffer.concat([head.subarray(0, payloadTag), files.read(fd, end, restBytes)]),
    )
    const isOther = around.service !== service || around.method !== method
    if (isOther || around.payload.length > 0) return undefined
    const request = { ...around, payload: head.subarray(payloadStart, dataTag) }
    return new StoredRequest(files, { fd, request, start, end })
  }

  close(): void {
    if (this.#place === undefined) return
    this.#place = undefined
    this.#close()
  }
}

/** Reads up to the length of the field. Returns where its tag begins. */
function findField(reader: BinaryReader, wanted: number): number {
  for (;;) {
    const start = reader.pos
    const [field, type] = reader.tag()
    if (field === wanted && type === WireType.LengthDelimited) return start
    reader.skip(type, field)
  }
}
