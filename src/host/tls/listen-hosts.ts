import { createServer, type Server, type TLSSocket } from 'node:tls'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { type Credentials, KEEP_ALIVE_MS, type Peer, peerOf, TLS } from './credentials.ts'
import { type Endpoint, endpointText } from './endpoint.ts'

/** How long a caller may take to show its certificate. */
const HANDSHAKE_MS = 10_000

/**
 * Accepts hosts and controllers, each with a certificate of its own, on paused sockets. Rejects with FAILED_PRECONDITION where it
 * cannot listen.
 */
export async function listenForHosts(
  endpoint: Endpoint,
  {
    credentials,
    log,
    serve,
  }: {
    readonly credentials: Credentials
    readonly log: Logger
    readonly serve: (socket: TLSSocket, peer: Peer) => void
  },
): Promise<Server> {
  const options = { ...TLS, requestCert: true, rejectUnauthorized: true, handshakeTimeout: HANDSHAKE_MS }
  const server = createServer({ ...credentials.pem, ...options, ALPNProtocols: [...TLS.ALPNProtocols] })
  const refused = (socket: TLSSocket, reason: string) =>
    log.warn('caller refused', { address: socket.remoteAddress, reason })
  server.on('secureConnection', (socket) => {
    socket.on('error', () => {})
    // A host that has lost its power ends nothing by itself.
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    try {
      serve(socket, peerOf(socket.getPeerCertificate(), socket.remoteAddress))
    } catch (error) {
      refused(socket, messageOf(error))
      socket.destroy()
    }
  })
  server.on('tlsClientError', (error, socket) => {
    const { authorizationError: fault } = socket
    refused(socket, fault ? `certificate: ${messageOf(fault)}` : messageOf(error))
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(notListening(endpoint, error)))
    server.listen({ ...endpoint }, resolve)
  })
  server.on('error', (error) => log.error('connection not accepted', { error: messageOf(error) }))
  return server
}

function notListening(endpoint: Endpoint, error: Error): AgentError {
  const text = `listen ${endpointText(endpoint)}: ${errnoOf(error) ?? error.message}`
  return new AgentError('FAILED_PRECONDITION', text, { cause: error })
}
