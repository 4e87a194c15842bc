import { parseIp } from '../../base/ip-address.ts'
import type { VsockAddress } from '../sockets/sockets.ts'

/** The version of the protocol with the broker (docs/broker.md). */
const VERSION = 3n

/** The kinds of messages on the control socket; the broker's own list is in native/broker/protocol.h. */
export const BrokerMessageKind = {
  HELLO: 1,
  PONG: 2,
  STOP: 3,
  CLOSE: 4,
  CONFIRM: 5,
  CONNECTION: 16,
  REQUEST_STATE: 17,
  READY: 18,
  PING: 19,
  FILE: 20,
} as const

export const LONGEST_MESSAGE_BYTES = 64 * 1024

const HEADER_BYTES = 24
const HELLO_BYTES = 36
const STATE_BYTES = 16
const LOOPBACK_ALLOWED = 1
const IS_GRPC = 1

export interface BrokerLimits {
  /** Accept processes of this guest over vsock, for tests. */
  readonly allowLoopback: boolean
  /** The only address that may connect over TCP; empty: any. */
  readonly tcpPeer: string
  /** The agent is killed after this time without a PONG; 0: never. */
  readonly hangMs: number
  readonly connections: number
  /** The time limit for a connection's first bytes, and for each ttRPC frame header. */
  readonly headerMs: number
  readonly framePayloadBytes: number
  /** The limit of stored requests and answers of all connections. */
  readonly totalBytes: number
}

export type BrokerPeer =
  | { readonly kind: 'unix' }
  | ({ readonly kind: 'vsock' } & VsockAddress)
  | { readonly kind: 'tcp'; readonly address: string; readonly port: number }

/** `open`: sent again; `answered`: stored in the broker; `written`: the client has it; `dropped`: no client has it. */
export type RequestState = 'open' | 'written' | 'dropped' | 'answered'

const STATES: readonly RequestState[] = ['open', 'written', 'dropped', 'answered']
const PEERS: readonly BrokerPeer['kind'][] = ['unix', 'vsock', 'tcp']

export type BrokerMessage =
  | {
      readonly kind: 'connection'
      readonly id: bigint
      readonly framing: 'ttrpc' | 'grpc'
      readonly peer: BrokerPeer
      /** Bytes that were read from a gRPC connection. */
      readonly firstBytes: Buffer
    }
  | { readonly kind: 'request state'; readonly states: ReadonlyMap<bigint, RequestState> }
  | { readonly kind: 'ready' }
  | { readonly kind: 'ping'; readonly number: bigint }
  /** The frame of a request, in a file. */
  | { readonly kind: 'file'; readonly number: bigint; readonly connection: bigint }

/** A message is a header, little endian: `u32 kind, u32 flags, u64 a, u64 b`; and its payload. */
function encode(kind: number, { flags = 0, a = 0n, b = 0n }, payload = Buffer.alloc(0)): Buffer {
  const message = Buffer.alloc(HEADER_BYTES + payload.length)
  message.writeUInt32LE(kind, 0)
  message.writeUInt32LE(flags, 4)
  message.writeBigUInt64LE(a, 8)
  message.writeBigUInt64LE(b, 16)
  payload.copy(message, HEADER_BYTES)
  return message
}

/** The first message, sent with the listening socket. */
export function encodeHello(limits: BrokerLimits): Buffer {
  const payload = Buffer.alloc(HELLO_BYTES)
  payload.writeUInt32LE(limits.connections, 0)
  payload.writeUInt32LE(limits.headerMs, 4)
  payload.writeUInt32LE(limits.framePayloadBytes, 8)
  payload.writeBigUInt64LE(BigInt(limits.totalBytes), 12)
  payload.set(mappedIp(limits.tcpPeer), 20)
  const flags = limits.allowLoopback ? LOOPBACK_ALLOWED : 0
  return encode(BrokerMessageKind.HELLO, { flags, a: VERSION, b: BigInt(limits.hangMs) }, payload)
}

/** 16 bytes, of which an IPv4 address fills the last four behind ::ffff. Zeros stand for no address. */
function mappedIp(text: string): Uint8Array {
  if (text === '') return new Uint8Array(16)
  const bytes = parseIp(text)
  if (bytes === undefined) throw new RangeError(`${text}: not an IP address`)
  return bytes.length === 16 ? bytes : Uint8Array.of(...Array(10).fill(0), 0xff, 0xff, ...bytes)
}

export function encodePong(number: bigint): Buffer {
  return encode(BrokerMessageKind.PONG, { a: number })
}

export function encodeStop(): Buffer {
  return encode(BrokerMessageKind.STOP, {})
}

export function encodeClose(id: bigint): Buffer {
  return encode(BrokerMessageKind.CLOSE, { a: id })
}

export function encodeConfirm(number: bigint): Buffer {
  return encode(BrokerMessageKind.CONFIRM, { a: number })
}

/** Throws RangeError that names what is wrong. */
export function decodeBrokerMessage(message: Buffer): BrokerMessage {
  if (message.length < HEADER_BYTES) throw new RangeError(`message of ${message.length} bytes`)
  const kind = message.readUInt32LE(0)
  const flags = message.readUInt32LE(4)
  const a = message.readBigUInt64LE(8)
  const payload = message.subarray(HEADER_BYTES)
  switch (kind) {
    case BrokerMessageKind.CONNECTION:
      return decodeConnection(a, flags, payload)
    case BrokerMessageKind.REQUEST_STATE:
      return { kind: 'request state', states: new Map([[a, stateOf(flags)], ...decodeStates(payload)]) }
    case BrokerMessageKind.READY:
      return { kind: 'ready' }
    case BrokerMessageKind.PING:
      return { kind: 'ping', number: a }
    case BrokerMessageKind.FILE:
      return { kind: 'file', number: a, connection: message.readBigUInt64LE(16) }
    default:
      throw new RangeError(`message of kind ${kind}, want 16 to 20`)
  }
}

/** `u32 peer kind, u32 cid, u32 port, u32 address length, address, u32 first bytes length, first bytes`. */
function decodeConnection(id: bigint, flags: number, payload: Buffer): BrokerMessage {
  const kind = PEERS[payload.readUInt32LE(0)]
  if (kind === undefined) throw new RangeError(`connection ${id}: peer of kind ${payload.readUInt32LE(0)}`)
  const addressEnd = 16 + payload.readUInt32LE(12)
  const address = payload.toString('latin1', 16, addressEnd)
  const firstBytes = payload.subarray(addressEnd + 4)
  if (payload.readUInt32LE(addressEnd) !== firstBytes.length) {
    throw new RangeError(
      `connection ${id}: payload of ${payload.length} bytes, whose parts have another length`,
    )
  }
  return {
    kind: 'connection',
    id,
    firstBytes,
    framing: (flags & IS_GRPC) === 0 ? 'ttrpc' : 'grpc',
    peer: { kind, cid: payload.readUInt32LE(4), port: payload.readUInt32LE(8), address },
  }
}

/** `u64 number, u64 state` each. */
function decodeStates(payload: Buffer): [bigint, RequestState][] {
  if (payload.length % STATE_BYTES !== 0) throw new RangeError(`states of ${payload.length} bytes`)
  const states: [bigint, RequestState][] = []
  for (let at = 0; at < payload.length; at += STATE_BYTES) {
    states.push([payload.readBigUInt64LE(at), stateOf(Number(payload.readBigUInt64LE(at + 8)))])
  }
  return states
}

function stateOf(number: number): RequestState {
  const state = STATES[number]
  if (state === undefined) throw new RangeError(`request in state ${number}, want 0 to 3`)
  return state
}
