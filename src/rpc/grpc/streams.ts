import type { Server, ServerDuplexStream, ServerWritableStream } from '@grpc/grpc-js'
import { cancelled } from '../../base/abort.ts'
import type { DuplexMethod, Failure, IncomingCall, StreamMethod } from '../method.ts'
import { asBuffer, errorOf, metadataOf, same } from './unary.ts'

type StreamCall = ServerWritableStream<Buffer, Uint8Array>
type DuplexCall = ServerDuplexStream<Buffer, Uint8Array>

/** A method that answers one request with a stream. */
export function serveStream(server: Server, name: string, method: StreamMethod, peer: string): void {
  const handle = (call: StreamCall) =>
    void answer(call, peer, (incoming, send) => method(call.request, incoming, send))
  server.register(`/${name}`, handle, asBuffer, copied, 'serverStream')
}

/** The request stays as long as the stream, and is a slice of a buffer that Node shares out among many messages. */
function copied(payload: Buffer): Buffer {
  return asBuffer(new Uint8Array(payload))
}

/** A method with a stream in each direction. */
export function serveDuplex(server: Server, name: string, method: DuplexMethod, peer: string): void {
  const handle = (call: DuplexCall) => {
    // A method that reads no more may still answer.
    const requests = call.iterator({ destroyOnReturn: false })
    void answer(call, peer, (incoming, send) => method(requests, incoming, send))
  }
  server.register(`/${name}`, handle, asBuffer, same, 'bidi')
}

async function answer(
  call: StreamCall | DuplexCall,
  peer: string,
  serve: (
    incoming: IncomingCall,
    send: (message: Uint8Array) => Promise<void>,
  ) => Promise<Failure | undefined>,
): Promise<void> {
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
  const failure = await serve(incoming, (message) => sent(call, message))
  if (hangup.signal.aborted) return
  if (failure === undefined) call.end()
  else call.emit('error', errorOf(failure))
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
