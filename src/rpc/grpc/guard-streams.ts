import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2'
import type { Server } from '@grpc/grpc-js'
import type { StartTimer } from '../timer.ts'

/**
 * Must be called before the connection is injected. Skips a stream that the client has reset: grpc-js answers a call of an
 * unknown method or content type anyway, and the error of that write would end the agent.
 */
export function guardStreams(server: Server, startTimer: StartTimer): void {
  replace(server, '_streamHandler', (serve) => (interceptors, stream: ServerHttp2Stream, headers) => {
    stream.on('error', ignore)
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

function ignore(): void {}

/** grpc-js reads these methods when a connection is injected; it has no public hook that runs this early. */
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

/** How long the calls of a client may go on after its GOAWAY. */
const CLOSING_MS = 60_000

/** When a client breaks the protocol after GOAWAY, Node stops reading and waits for its calls, even after its end. */
function endAfterGoaway(session: ServerHttp2Session, startTimer: StartTimer): void {
  session.once('goaway', () => {
    const stopTimer = startTimer(CLOSING_MS, () => session.destroy())
    session.once('close', stopTimer)
  })
}
