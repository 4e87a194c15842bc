import type { Duplex } from 'node:stream'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import { errnoOf } from '../../base/errors.ts'
import type { ServedConnection } from '../connection.ts'
import { type ConnectionTotals, LIMITS } from '../limits.ts'
import type { CheckCall, DuplexTable, MethodTable, StreamTable } from '../method.ts'
import type { StartTimer } from '../timer.ts'
import { guardStreams } from './guard-streams.ts'
import { healthMethods, registerHealthWatch, WATCH } from './health.ts'
import { limitCalls } from './limit-calls.ts'
import { REFLECTION_METHODS, type ReadDescriptors, registerReflection } from './reflection.ts'
import { serveDuplex, serveStream } from './streams.ts'
import { serveUnary } from './unary.ts'

/** Methods whose calls may stay open for ever, with the most bytes of one request. */
const STREAMS = [WATCH, ...REFLECTION_METHODS].map((name) => [name, LIMITS.streamMessageBytes] as const)

export interface AcceptedGrpc {
  readonly methods: MethodTable
  /** Methods that answer with streams. They take precedence over unary ones of the same name. */
  readonly streams?: StreamTable
  readonly duplexes?: DuplexTable
  readonly peer: string
  /** Bytes already read from the socket; they begin with the HTTP/2 preface. */
  readonly firstBytes: Buffer
  readonly readDescriptors: ReadDescriptors
  /** Of an encoded answer; that of a request by default. */
  readonly answerBytes?: number
  readonly checkCall: CheckCall
  readonly totals: ConnectionTotals
  readonly startTimer: StartTimer
}

/** Serves the methods, health and reflection on an accepted, paused socket. An idle connection is never closed. */
export function serveGrpc(socket: Duplex, accepted: AcceptedGrpc): ServedConnection {
  const { checkCall, streams = new Map(), duplexes = new Map(), peer } = accepted
  const methods = new Map([...accepted.methods, ...healthMethods(accepted.methods, checkCall)])
  // One server per connection gives each its own name, limits and end; connections are few.
  const server = new Server({
    'grpc.max_receive_message_length': LIMITS.messageBytes,
    'grpc.max_send_message_length': accepted.answerBytes ?? LIMITS.messageBytes,
    'grpc.max_concurrent_streams': LIMITS.connection.openStreams,
    'grpc.enable_channelz': 0,
    interceptors: [limitCalls(accepted.totals, methods, bytesOfStreams(streams, duplexes))],
  })
  let isLost = false
  const wasLost = () => isLost
  socket.on('error', (error) => {
    isLost ||= LOST.includes(errnoOf(error) ?? '')
  })
  for (const [name, method] of streams) serveStream(server, name, method, peer)
  for (const [name, { serve }] of duplexes) serveDuplex(server, name, serve, peer)
  for (const [name, { serve }] of methods) {
    // grpc-js keeps the first handler of a name.
    serveUnary(server, name, serve, { peer, inTurn: accepted.totals.inTurn, wasLost })
  }
  registerHealthWatch(server, accepted.methods, checkCall)
  registerReflection(server, accepted)
  guardStreams(server, accepted.startTimer)
  socket.once('close', () => server.forceShutdown())
  socket.unshift(accepted.firstBytes)
  server.createConnectionInjector(ServerCredentials.createInsecure()).injectConnection(socket)
  // The connection is closed once the calls have ended; the caller of `drain` limits the time.
  return { drain: () => server.tryShutdown(() => {}) }
}

/** What a socket tells when its device is gone; a vsock tells the second. */
const LOST: readonly string[] = ['ECONNRESET', 'ENOTCONN']

function bytesOfStreams(streams: StreamTable, duplexes: DuplexTable): ReadonlyMap<string, number> {
  return new Map([
    ...STREAMS,
    ...[...streams.keys()].map((name) => [name, LIMITS.streamMessageBytes] as const),
    ...[...duplexes].map(([name, { messageBytes }]) => [name, messageBytes] as const),
  ])
}
