import { connect, type NetConnectOpts, type Socket } from 'node:net'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'

/** Connects a unix or TCP socket. Rejects with UNAVAILABLE and the errno, or with the signal's reason. */
export async function connectSocket(options: NetConnectOpts, signal: AbortSignal): Promise<Socket> {
  const socket = connect(options)
  const connected = Promise.withResolvers<void>()
  const onError = (error: Error) => connected.reject(unavailable(error))
  socket.once('connect', connected.resolve).once('error', onError)
  try {
    await abortable(connected.promise, signal)
    socket.off('error', onError)
    return socket
  } catch (error) {
    // A late `error` event without a listener would end the process.
    socket.on('error', () => {}).destroy()
    throw error
  }
}

function unavailable(error: Error): AgentError {
  const errno = errnoOf(error)
  return new AgentError('UNAVAILABLE', messageOf(error), { cause: error, ...(errno && { errno }) })
}
