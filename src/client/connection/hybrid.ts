import type { Duplex } from 'node:stream'
import { AgentError } from '../../base/errors.ts'

/** The answer is `OK <port>`; anything longer does not come from a vsock daemon. */
const LONGEST_ANSWER = 32

/**
 * Asks the vsock daemon behind `socket` for the guest's `port` ("hybrid vsock", docs/vsock.md of Firecracker): sends
 * `CONNECT <port>`, reads `OK <port>`, and leaves every byte after it in the stream. Rejects with UNAVAILABLE when the
 * daemon closes the connection instead, as it does until the guest listens.
 */
export async function hybridHandshake(socket: Duplex, port: number, signal: AbortSignal): Promise<void> {
  socket.write(`CONNECT ${port}\n`)
  const answer = await readLine(socket, signal)
  if (!/^OK \d+$/.test(answer)) {
    throw new AgentError('INTERNAL', `vsock port ${port}: the daemon answered ${JSON.stringify(answer)}`)
  }
}

function readLine(socket: Duplex, signal: AbortSignal): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  let received = Buffer.alloc(0)
  const stop = () => {
    socket.off('readable', onReadable).off('end', onEnd).off('close', onEnd).off('error', onError)
    signal.removeEventListener('abort', onAbort)
  }
  const fail = (error: unknown) => {
    stop()
    reject(error)
  }
  const onReadable = () => {
    const chunk: unknown = socket.read()
    if (!Buffer.isBuffer(chunk)) return
    received = Buffer.concat([received, chunk])
    const end = received.indexOf('\n')
    if (end === -1) {
      if (received.length > LONGEST_ANSWER)
        fail(new AgentError('INTERNAL', 'vsock: the daemon answered no line'))
      return
    }
    // Before the rest is unread, which makes the stream readable again.
    stop()
    const rest = received.subarray(end + 1)
    if (rest.length > 0) socket.unshift(rest)
    resolve(received.subarray(0, end).toString('latin1'))
  }
  const onEnd = () => fail(new AgentError('UNAVAILABLE', 'vsock: the guest does not listen yet'))
  const onError = (error: Error) => fail(new AgentError('UNAVAILABLE', `vsock: ${error.message}`))
  const onAbort = () => fail(signal.reason)
  socket.on('readable', onReadable).once('end', onEnd).once('close', onEnd).once('error', onError)
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  return promise
}
