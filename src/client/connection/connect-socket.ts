import { connect, type NetConnectOpts, type Socket } from 'node:net'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'

/** Connects a unix or TCP socket. Rejects with UNAVAILABLE and the errno, or with the signal's reason. */
export async function connectSocket(options: NetConnectOpts, signal: AbortSignal): Promise<Socket> {
  signal.throwIfAborted()
  const socket = connect(options)
  const connected = Promise.withResolvers<void>()
  const onAbort = () => connected.reject(signal.reason)
  const onError = (error: Error) => connected.reject(unavailable(error))
  signal.addEventListener('abort', onAbort, { once: true })
  socket.once('connect', connected.resolve).once('error', onError)
  try {
    await connected.promise
    socket.off('error', onError)
    return socket
  } catch (error) {
    // The socket is no longer used, so a late error of it has no meaning.
    socket.on('error', () => {}).destroy()
    throw error
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

function unavailable(error: Error): AgentError {
  const errno = errnoOf(error)
  return new AgentError('UNAVAILABLE', messageOf(error), { cause: error, ...(errno && { errno }) })
}
