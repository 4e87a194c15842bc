import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../base/errors.ts'
import { HealthDefinition } from '../../gen/health.ts'
import { clientFor } from '../../rpc/client.ts'
import { type TtrpcClient, ttrpcClient } from '../../rpc/ttrpc/client.ts'

/** How calls are framed. */
export type Protocol = 'ttrpc' | 'grpc'

/** A way to an agent: each call of `connect` makes a connection, or rejects with UNAVAILABLE or an errno. */
export interface Dialer {
  connect(signal: AbortSignal): Promise<Duplex>
}

/** The first retry comes soon and later ones less often, because retries do not make a slow boot faster. */
const FIRST_RETRY_MS = 5
const LONGEST_RETRY_MS = 100
/** A connection whose other end was lost during the boot may stay silent. */
const ATTEMPT_TIMEOUT_MS = 5_000

/**
 * Connects to the agent once it answers a health check. The daemon and QEMU close connections to a guest that does not
 * listen yet, so this retries. Rejects with the reason of `signal`, which should also fire when the guest is gone.
 */
export async function connectAgent(
  link: Dialer,
  signal: AbortSignal,
  protocol: Protocol = 'ttrpc',
): Promise<TtrpcClient> {
  for (let waitMs = FIRST_RETRY_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_RETRY_MS)) {
    signal.throwIfAborted()
    try {
      return await connectOnce(link, signal, protocol)
    } catch (error) {
      signal.throwIfAborted()
      if (!isWorthAnotherTry(error)) throw error
    }
    await delay(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted())
  }
}

/**
 * Connects to the agent in one try of at most 5 s, and checks its health. Rejects with what failed, or with
 * {@link NotTtrpc} when the other side answers in another protocol.
 */
export async function connectOnce(
  link: Dialer,
  signal: AbortSignal,
  protocol: Protocol = 'ttrpc',
): Promise<TtrpcClient> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(ATTEMPT_TIMEOUT_MS)])
  const socket = await link.connect(limit)
  const client = protocol === 'ttrpc' ? ttrpcClient(socket) : await grpcClient(socket)
  // After the client, in the same turn, so that no byte is lost.
  const otherProtocol = protocol === 'ttrpc' ? refuseOthers(socket) : new Promise<never>(() => {})
  const check = clientFor(HealthDefinition, client).check({}, { signal: limit })
  try {
    await Promise.race([check, otherProtocol])
    return client
  } catch (error) {
    check.catch(() => {})
    client.close()
    throw error
  }
}

/** The other side answers in another protocol than ttRPC. */
class NotTtrpc extends AgentError {
  constructor() {
    super('INTERNAL', 'the answer is not ttRPC')
  }
}

/** HTTP/2 is loaded only for those who want it. */
async function grpcClient(socket: Duplex): Promise<TtrpcClient> {
  const { grpcConnection } = await import('./grpc-connection.ts')
  return grpcConnection(socket)
}

/** Rejects at an answer whose first frame would have 16 MiB or more: a text, HTTP or TLS. Never resolves. */
function refuseOthers(socket: Duplex): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  promise.catch(() => {})
  socket.once('data', (chunk: Buffer) => {
    if (chunk[0] !== 0) reject(new NotTtrpc())
  })
  return promise
}

function isWorthAnotherTry(error: unknown): boolean {
  if (error instanceof AgentError) return error.code === 'UNAVAILABLE' || error.errno !== undefined
  return error instanceof Error && error.name === 'TimeoutError'
}
