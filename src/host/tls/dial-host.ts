import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'
import { abortable } from '../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { type GrpcConnection, grpcConnection } from '../../client/connection/grpc-connection.ts'
import { CONTROLLER, type Credentials, KEEP_ALIVE_MS, TLS } from './credentials.ts'
import { type Endpoint, endpointText } from './endpoint.ts'

const CONNECT_MS = 10_000

/**
 * Connects to a host or a controller, whose certificate must have this name. Rejects with UNAVAILABLE where nothing answers, and with
 * PERMISSION_DENIED and the reason when one side refuses the other's certificate.
 */
export async function dialHost(
  endpoint: Endpoint,
  {
    name,
    credentials,
    signal,
    withinMs = CONNECT_MS,
  }: {
    readonly name: string
    readonly credentials: Credentials
    readonly signal: AbortSignal
    readonly withinMs?: number
  },
): Promise<GrpcConnection> {
  const late = AbortSignal.timeout(Math.ceil(withinMs))
  const over = AbortSignal.any([signal, late])
  const socket = connect({
    ...endpoint,
    ...credentials.pem,
    ...TLS,
    ALPNProtocols: [...TLS.ALPNProtocols],
    servername: name,
  })
  socket.setKeepAlive(true, KEEP_ALIVE_MS)
  let refusal: unknown
  // A server that refuses the certificate tells so after the handshake.
  socket.on('error', (error) => {
    refusal ??= error
  })
  const who = name === CONTROLLER ? name : `host ${name}`
  const fail = (text: string, code: 'PERMISSION_DENIED' | 'UNAVAILABLE', cause?: unknown) =>
    new AgentError(code, `${who} at ${endpointText(endpoint)}: ${text}`, { cause })
  try {
    await abortable(once(socket, 'secureConnect'), over)
    const connection = grpcConnection(socket)
    if (await abortable(connection.greeted, over)) return connection
    connection.close()
    throw fail(`refuses the certificate of ${credentials.id}${refusalText(refusal)}`, 'PERMISSION_DENIED')
  } catch (error) {
    socket.destroy()
    if (error instanceof AgentError) throw error
    signal.throwIfAborted()
    if (late.aborted) throw fail(`no answer in ${withinMs} ms`, 'UNAVAILABLE')
    const reason = certificateFault(socket, error)
    if (reason !== undefined) throw fail(`its certificate is refused: ${reason}`, 'PERMISSION_DENIED', error)
    throw fail(errnoOf(error) ?? messageOf(error), 'UNAVAILABLE', error)
  }
}

function refusalText(error: unknown): string {
  return error === undefined ? '; its log tells why' : `: ${messageOf(error)}`
}

/** Why the server's certificate is not taken; undefined for other faults. */
function certificateFault(socket: TLSSocket, error: unknown): string | undefined {
  const code = errnoOf(error) ?? ''
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') return messageOf(error)
  const isRefused = socket.authorizationError !== undefined && socket.authorizationError !== null
  return isRefused || /CERT|ISSUER|SSL/.test(code) ? `${code} ${messageOf(error)}` : undefined
}
