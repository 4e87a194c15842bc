import { connect, type NetConnectOpts, type Socket } from 'node:net'
import { AgentError, messageOf } from '../base/errors.ts'

/** Connects a unix or TCP socket. Rejects with UNAVAILABLE, or with the signal's reason. */
export async function connectSocket(options: NetConnectOpts, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted()
  const socket = connect(options)
  const connected = Promise.withResolvers<void>()
  const onAbort = () => connected.reject(signal.reason)
  const onError = (error: Error) =>
    connected.reject(new AgentError('UNAVAILABLE', messageOf(error), { cause: error }))
  signal.addEventListener('abort', onAbort, { once: true })
  socket.once('connect', connected.resolve).once('error', onError)
  try {
    await connected.promise
    socket.off('error', onError)
    return socket
  } catch (error) {
    // A late error of a socket that nobody uses any more is nobody's business.
    socket.on('error', () => {}).destroy()
    throw error
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
