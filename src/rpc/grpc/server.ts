import type { Duplex } from 'node:stream'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import { MAX_MESSAGE_BYTES, MAX_OPEN_CALLS, type ServedConnection } from '../connection.ts'
import type { CheckCall, MethodTable } from '../method.ts'
import { healthMethods, registerHealthWatch } from './health.ts'
import { type ReadDescriptors, registerReflection } from './reflection.ts'
import { serveUnary } from './unary.ts'

export interface GrpcOptions {
  readonly methods: MethodTable
  /** Names the connection in logs. */
  readonly peer: string
  /** What has been read from the socket already; it begins with the HTTP/2 preface. */
  readonly firstBytes: Buffer
  readonly readDescriptors: ReadDescriptors
  readonly checkCall: CheckCall
}

/**
 * Serves gRPC on one accepted, paused socket until either side closes it: the methods of the table,
 * `grpc.health.v1` and server reflection. A connection is never closed for being idle.
 */
export function serveGrpc(socket: Duplex, options: GrpcOptions): ServedConnection {
  // One server per connection, which are few: so each has a name, limits and an end of its own.
  const server = new Server({
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': MAX_OPEN_CALLS,
    'grpc.enable_channelz': 0,
  })
  const { checkCall } = options
  const methods = new Map([...options.methods, ...healthMethods(options.methods, checkCall)])
  for (const [name, method] of methods) serveUnary(server, name, method, options.peer)
  registerHealthWatch(server, options.methods, checkCall)
  registerReflection(server, options)
  socket.once('close', () => server.forceShutdown())
  socket.unshift(options.firstBytes)
  server.createConnectionInjector(ServerCredentials.createInsecure()).injectConnection(socket)
  // The connection is closed once the calls have ended; the caller of `drain` limits the time.
  return { drain: () => server.tryShutdown(() => {}) }
}
