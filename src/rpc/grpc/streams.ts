import type { Server, ServerDuplexStream, ServerWritableStream } from '@grpc/grpc-js'
import { cancelled } from '../../base/abort.ts'
import type { DuplexMethod, Failure, IncomingCall, StreamMethod } from '../method.ts'
import { asBuffer, errorOf, metadataOf, same } from './unary.ts'

type StreamCall = ServerWritableStream<Buffer[], Uint8Array>
type DuplexCall = ServerDuplexStream<Buffer, Uint8Array>

/** A method that answers one request with a stream. */
export function serveStream(server: Server, name: string, method: StreamMethod, peer: string): void {
  const handle = (call: StreamCall) => {
    const [payload = Buffer.alloc(0)] = call.request.splice(0)
    answer(call, peer, (incoming, send) => method(payload, incoming, send))
  }
  server.register(`/${name}`, handle, asBuffer, taken, 'serverStream')
}

/** grpc-js keeps what this returns as long as the stream. The payload is a slice of a larger buffer, so it is taken out of it. */
function taken(payload: Buffer): Buffer[] {
  return [payload]
}

/** A method with a stream in each direction. */
export function serveDuplex(server: Server, name: string, method: DuplexMethod, peer: string): void {
  const handle = (call: DuplexCall) => {
    // A method that reads no more may still answer.
    const requests = call.iterator({ destroyOnReturn: false })
    answer(call, peer, (incoming, send) => method(requests, incoming, send))
  }
  server.register(`/${name}`, handle, asBuffer, same, 'bidi')
}

function answer(
  call: StreamCall | DuplexCall,
  peer: string,
  serve: (
    incoming: IncomingCall,
    send: (message: Uint8Array) => Promise<void>,
  ) => Promise<Failure | undefined>,
): void {
  const hangup = new AbortController()
  call.on('cancelled', () => hangup.abort(cancelled()))
  const incoming: IncomingCall = {
    timeoutMs: undefined,
    hangup: hangup.signal,
    peer,
    number: undefined,
    ageMs: 0,
    framing: 'grpc',
    ...metadataOf(call),
  }
  // Without `await`, which would keep the whole function for each open stream.
  void serve(incoming, (message) => sent(call, message)).then((failure) => {
    if (hangup.signal.aborted) return
    if (failure === undefined) call.end()
    else call.emit('error', errorOf(failure))
  })
}

function sent(call: StreamCall | DuplexCall, message: Uint8Array): Promise<void> {
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
