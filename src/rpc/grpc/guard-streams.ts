import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2'
import type { Server } from '@grpc/grpc-js'
import type { StartTimer } from '../timer.ts'

/**
 * Guards a server of one connection against what grpc-js and Node's HTTP/2 do not expect of a client. Comes before the
 * connection is injected.
 *
 * A stream that the client has reset by the time grpc-js is told of it is passed over. A call of an unknown method, or of
 * another content type, would be answered all the same, and the error of that would end the agent. The calls of a client
 * that is closing end after {@link CLOSING_MS}.
 */
export function guardStreams(server: Server, startTimer: StartTimer): void {
  replace(server, '_streamHandler', (serve) => (interceptors, stream: ServerHttp2Stream, headers) => {
    stream.on('error', () => {})
    if (!stream.destroyed && !stream.closed) serve(interceptors, stream, headers)
  })
  replace(server, '_sessionHandler', (handlerOf) => (http2Server) => {
    const begin = handlerOf(http2Server)
    return (session: ServerHttp2Session) => {
      endAfterGoaway(session, startTimer)
      if (typeof begin === 'function') begin(session)
    }
  })
}

/** grpc-js reads these methods when a connection is injected. It has nothing else that comes before its look at a call. */
function replace(
  server: Server,
  name: '_streamHandler' | '_sessionHandler',
  by: (present: (...args: readonly unknown[]) => unknown) => (...args: never[]) => unknown,
): void {
  const present: unknown = Reflect.get(server, name)
  if (typeof present !== 'function') throw new Error(`grpc-js: the server has no ${name}`)
  Reflect.set(
    server,
    name,
    by((...args) => Reflect.apply(present, server, args)),
  )
}

/** How long the calls of a client may go on that has said that it will close (GOAWAY). */
const CLOSING_MS = 60_000

/** When such a client breaks the protocol, Node reads no more and waits for its calls, also after the client is gone. */
function endAfterGoaway(session: ServerHttp2Session, startTimer: StartTimer): void {
  session.once('goaway', () => {
    const stopTimer = startTimer(CLOSING_MS, () => session.destroy())
    session.once('close', stopTimer)
  })
}
