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
export interface StoredRequest {
  readonly request: TtrpcRequest
  readonly data: StoredBytes
  close(): void
}

interface FrameFile {
  readonly fd: number
  readonly frameBytes: number
}

/** The number of the field that a method takes from a file, if it takes one. */
type DataFieldOf = (method: string) => number | undefined

/** Undefined without such a field, or if it is not last, where encoders put it: the frame must be read whole. */
export function storedRequest(
  files: FrameFiles,
  file: FrameFile,
  dataFieldOf: DataFieldOf,
): StoredRequest | undefined {
  try {
    const found = split(files, file, dataFieldOf)
    return found && { request: found.request, ...opened(files, file.fd, found) }
  } catch {
    // The head ends before the data, or the frame is no protobuf; then the decoder of the whole frame says so.
    return undefined
  }
}

function split(files: FrameFiles, { fd, frameBytes }: FrameFile, dataFieldOf: DataFieldOf) {
  const head = files.read(fd, FRAME_HEADER_BYTES, MOST_AROUND)
  const reader = new BinaryReader(head)
  const payloadTag = findField(reader, 3)
  const payloadBytes = reader.uint32()
  const payloadStart = reader.pos
  const { service, method } = decodeRequest(head.subarray(0, payloadTag))
  const dataField = dataFieldOf(`${service}/${method}`)
  if (dataField === undefined) return undefined
  const dataTag = findField(reader, dataField)
  const length = reader.uint32()
  const start = FRAME_HEADER_BYTES + reader.pos
  const end = FRAME_HEADER_BYTES + payloadStart + payloadBytes
  const restBytes = frameBytes - end
  if (start + length !== end || restBytes < 0 || restBytes > MOST_AROUND) return undefined
  const around = decodeRequest(Buffer.concat([head.subarray(0, payloadTag), files.read(fd, end, restBytes)]))
  const isOther = around.service !== service || around.method !== method
  if (isOther || around.payload.length > 0) return undefined
  return { request: { ...around, payload: head.subarray(payloadStart, dataTag) }, start, length }
}

function opened(
  files: FrameFiles,
  fd: number,
  { start, length }: { readonly start: number; readonly length: number },
): Pick<StoredRequest, 'close' | 'data'> {
  let place: StoredBytes['place'] = { fd, offset: start }
  const data = {
    length,
    get place() {
      return place
    },
    read: () => {
      if (place === undefined) throw new Error('the file of the request is closed')
      return files.read(fd, start, length)
    },
  }
  const close = () => {
    if (place !== undefined) files.close(fd)
    place = undefined
  }
  return { data, close }
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
