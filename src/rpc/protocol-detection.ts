import { FRAME_HEADER_BYTES } from './ttrpc/frame.ts'

/** What the first bytes of a connection say about its framing. */
export type DetectedProtocol = 'grpc' | 'ttrpc' | 'need-more' | 'invalid'

/** The HTTP/2 client preface (RFC 9113, section 3.4): detection needs no more bytes than these. */
const HTTP2_PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1')

/** The message types of ttRPC: request, response, data. */
const TTRPC_TYPES: readonly (number | undefined)[] = [1, 2, 3]

/**
 * The framing of a connection by all bytes that it has sent so far. A ttRPC connection begins with a frame header. A first
 * frame of 16 MiB or more, four times the limit, is `invalid`: it is an HTTP/1 request, a TLS hello or text.
 */
export function detectProtocol(bytes: Uint8Array): DetectedProtocol {
  if (bytes.length === 0) return 'need-more'
  if (bytes[0] === HTTP2_PREFACE[0]) return detectPreface(bytes)
  if (bytes[0] !== 0) return 'invalid'
  if (bytes.length < FRAME_HEADER_BYTES) return 'need-more'
  return TTRPC_TYPES.includes(bytes[8]) ? 'ttrpc' : 'invalid'
}

function detectPreface(bytes: Uint8Array): DetectedProtocol {
  const known = Math.min(bytes.length, HTTP2_PREFACE.length)
  for (let index = 0; index < known; index += 1) {
    if (bytes[index] !== HTTP2_PREFACE[index]) return 'invalid'
  }
  return known === HTTP2_PREFACE.length ? 'grpc' : 'need-more'
}
