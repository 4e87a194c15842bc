import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { describe } from 'vitest'
import { AgentError, messageOf } from '../../src/base/errors.ts'
import { REQUESTS } from '../../src/gen/message-fields.ts'
import { countElements } from '../../src/rpc/count-elements.ts'
import { decodeRequest, decodeResponse } from '../../src/rpc/ttrpc/messages.ts'
import { anyBytes } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import {
  anyCalls,
  REQUEST_TYPES,
  type RequestType,
  recordedRequests,
  showCall,
} from '../support/fuzz/requests.ts'

const UNKNOWN_FIELD = new BinaryWriter()
  .tag(9999, WireType.LengthDelimited)
  .bytes(new Uint8Array(600))
  .finish()

describe('the codec of requests', () => {
  fuzz('messages/requests', {
    share: 280,
    input: anyCalls(),
    show: showCall,
    run: ({ method, payload }) => {
      const type = REQUEST_TYPES.get(method)
      if (type === undefined) throw new Error(`${method}: no such method`)
      checkRequest(type, REQUESTS[method], payload)
      // Long enough to be counted field by field.
      checkRequest(type, REQUESTS[method], Buffer.concat([UNKNOWN_FIELD, payload]))
    },
  })

  fuzz('messages/ttrpc', {
    share: 60,
    input: anyBytes([...recordedRequests().values()].flat()),
    show: (bytes) => bytes.toString('hex'),
    run: (bytes) => {
      const request = decodedBy(() => decodeRequest(bytes))
      if (request !== undefined && request.payload.length > bytes.length)
        throw new Error(`${request.payload.length} bytes of payload in ${bytes.length}`)
      decodedBy(() => decodeResponse(bytes))
    },
  })
})

/** A decoded message must encode to the same bytes again and have no more elements than were counted. */
function checkRequest(type: RequestType, message: string | undefined, payload: Uint8Array): void {
  let counted: number
  try {
    counted = countElements(payload, message)
  } catch (error) {
    if (error instanceof AgentError && ['RESOURCE_EXHAUSTED', 'UNKNOWN'].includes(error.code)) return
    throw error
  }
  const decoded = decodedBy(() => type.decode(payload))
  if (decoded === undefined) return
  const elements = elementsOf(decoded)
  if (elements > counted) throw new Error(`${elements} elements, but ${counted} were counted`)
  // `decoded` has the type's message type, but the compiler cannot know it.
  const encoded = type.encode(decoded as never).finish()
  const again = type.encode(type.decode(encoded) as never).finish()
  if (Buffer.compare(encoded, again) !== 0)
    throw new Error(
      `encodes to ${Buffer.from(encoded).toString('hex')}, then to ${Buffer.from(again).toString('hex')}`,
    )
}

/** Returns undefined when the decoder refuses the bytes with one of its own errors. */
function decodedBy<T>(decode: () => T): T | undefined {
  try {
    return decode()
  } catch (error) {
    if (
      /premature EOF|illegal tag|wire type|end group|varint|index out of range|unterminated|recursion/i.test(
        messageOf(error),
      )
    )
      return undefined
    throw error
  }
}

/** Counts items of lists, entries of maps, and nested messages. */
function elementsOf(value: unknown): number {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return 0
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + 1 + elementsOf(item), 0)
  return Object.values(value).reduce<number>(
    (sum, item) =>
      sum +
      (typeof item === 'object' && item !== null && !Array.isArray(item) && !(item instanceof Uint8Array)
        ? 1
        : 0) +
      elementsOf(item),
    0,
  )
}
