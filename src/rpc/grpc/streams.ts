import type { Server, ServerWritableStream } from '@grpc/grpc-js'
import { cancelled } from '../../base/abort.ts'
import { StatusCode } from '../../base/errors.ts'
import type { IncomingCall, StreamMethod } from '../method.ts'
import { traceparentOf } from './unary.ts'

type StreamCall = ServerWritableStream<Buffer, Uint8Array>

/** Serves one method that answers with any number of messages, which stay encoded. */
export function serveStream(server: Server, name: string, method: StreamMethod, peer: string): void {
  server.register(
    `/${name}`,
    (call: StreamCall) => void answer(call, method, peer),
    (response: Uint8Array) => Buffer.from(response),
    (request: Buffer) => request,
    'serverStream',
  )
}

async function answer(call: StreamCall, method: StreamMethod, peer: string): Promise<void> {
  const hangup = new AbortController()
  // grpc-js emits it once for every call: when its status has been sent, or when it never will be.
  call.once('cancelled', () => hangup.abort(cancelled()))
  const incoming: IncomingCall = {
    ...{ timeoutMs: undefined, hangup: hangup.signal, peer, number: undefined, ageMs: 0 },
    framing: 'grpc',
    traceparent: traceparentOf(call),
  }
  const failure = await method(call.request, incoming, (message) => sent(call, message))
  if (hangup.signal.aborted) return
  if (failure === undefined) call.end()
  else call.emit('error', { code: StatusCode[failure.code], details: failure.message })
}

/** Resolves once the message has been sent or never will be. */
function sent(call: StreamCall, message: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    call.once('close', resolve)
    call.once('cancelled', resolve)
    call.write(message, () => {
      call.off('close', resolve)
      call.off('cancelled', resolve)
      resolve()
    })
  })
}
