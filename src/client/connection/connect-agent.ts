import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../base/errors.ts'
import { HealthDefinition } from '../../gen/health.ts'
import { clientFor } from '../../rpc/client.ts'
import { type TtrpcClient, ttrpcClient } from '../../rpc/ttrpc/client.ts'

export type Protocol = 'ttrpc' | 'grpc'

/** Opens connections to an agent. `connect` rejects with UNAVAILABLE or an errno. */
export interface Dialer {
  connect(signal: AbortSignal): Promise<Duplex>
}

/** Retries become rarer, because they do not make a slow boot faster. */
const FIRST_RETRY_MS = 5
const LONGEST_RETRY_MS = 100
/** A connection whose other end was lost during the boot may stay silent. */
const ATTEMPT_TIMEOUT_MS = 5_000

/**
 * Connects to the agent, and retries until it answers a health check: connections close until the guest listens.
 * Rejects with the reason of `signal`, which should also fire when the guest ends.
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

/** Makes one attempt of at most 5 s. Rejects with {@link NotTtrpc} when the peer speaks another protocol. */
export async function connectOnce(
  link: Dialer,
  signal: AbortSignal,
  protocol: Protocol = 'ttrpc',
): Promise<TtrpcClient> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(ATTEMPT_TIMEOUT_MS)])
  const socket = await link.connect(limit)
  const client = protocol === 'ttrpc' ? ttrpcClient(socket) : await grpcClient(socket)
  // Added in the same tick as the client's own listener, so that neither misses a byte.
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

class NotTtrpc extends AgentError {
  constructor() {
    super('INTERNAL', 'the answer is not ttRPC')
  }
}

/** Loads HTTP/2 only when it is used. */
async function grpcClient(socket: Duplex): Promise<TtrpcClient> {
  const { grpcConnection } = await import('./grpc-connection.ts')
  return grpcConnection(socket)
}

/** Rejects when the first byte is not 0, unlike a ttRPC frame of less than 16 MiB. Never resolves. */
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
