import type { Duplex } from 'node:stream'
import { HealthDefinition } from '../../gen/health.ts'
import { FRAME_HEADER_BYTES, FrameType, parseFrameHeader } from '../../rpc/ttrpc/frame.ts'
import { decodeResponse, encodeRequestFrame } from '../../rpc/ttrpc/messages.ts'

const ANSWER_MS = 1_000
const SHOWN_BYTES = 48

export const SILENT = 'a service that answers nothing'

export const AGENT = 'the agent'

/** Names what serves a socket, such as `an HTTP/1 server`, within a second. Closes the socket. */
export async function identifyPeer(socket: Duplex): Promise<string> {
  const payload = new Uint8Array()
  const { fullName: service, methods } = HealthDefinition
  socket.write(encodeRequestFrame(1, { service, method: methods.check.name, payload, timeoutNano: 0n }))
  const { bytes, closed } = await firstBytes(socket)
  if (bytes.length > 0) return nameOf(bytes)
  return closed ? 'a service that closes the connection without an answer' : SILENT
}

function nameOf(bytes: Buffer): string {
  const text = bytes.toString('latin1')
  if (text.startsWith('HTTP/1')) return 'an HTTP/1 server'
  if (text.startsWith('SSH-')) return 'an SSH server'
  if (text.startsWith('OK ')) return 'a hybrid vsock socket'
  if (bytes[0] === 0x15 && bytes[1] === 0x03) return 'a TLS server'
  // A SETTINGS frame on stream 0 begins HTTP/2 (RFC 9113, section 6.5).
  if (bytes.length >= 9 && bytes[0] === 0 && bytes[3] === 4 && bytes.readUInt32BE(5) === 0)
    return 'an HTTP/2 server, such as gRPC'
  if (bytes.length >= FRAME_HEADER_BYTES && bytes[0] === 0 && bytes[8] === FrameType.response)
    return isSuccess(bytes) ? AGENT : 'a ttRPC server without grpc.Health'
  return `a service that answers ${JSON.stringify(text.slice(0, SHOWN_BYTES))}`
}

function isSuccess(bytes: Buffer): boolean {
  const end = FRAME_HEADER_BYTES + parseFrameHeader(bytes, 0).payloadBytes
  try {
    return decodeResponse(bytes.subarray(FRAME_HEADER_BYTES, end)).code === 0
  } catch {
    return false
  }
}

async function firstBytes(socket: Duplex): Promise<{ readonly bytes: Buffer; readonly closed: boolean }> {
  const done = Promise.withResolvers<boolean>()
  let bytes = Buffer.alloc(0)
  const onData = (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk])
    if (bytes.length >= SHOWN_BYTES) done.resolve(false)
  }
  const onClose = () => done.resolve(true)
  const timer = setTimeout(() => done.resolve(false), ANSWER_MS)
  socket.on('data', onData).on('error', onClose).once('end', onClose).once('close', onClose)
  const closed = await done.promise
  clearTimeout(timer)
  socket.destroy()
  return { bytes, closed }
}
