import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../../base/abort.ts'
import { AgentError, ConnectionLost, errnoOf, messageOf } from '../../base/errors.ts'
import { InstanceServiceDefinition } from '../../gen/microvm/instance/v1/instance.ts'
import { SecretServiceDefinition } from '../../gen/microvm/instance/v1/secret.ts'
import { OOBManagementDefinition } from '../../gen/vm.ts'
import { clientFor, type ServiceClient } from '../../rpc/client.ts'
import { connectSocket } from '../connection/connect-socket.ts'
import type { GrpcConnection, StreamCall } from '../connection/grpc-connection.ts'

type Calling = Parameters<typeof clientFor>[1]
type Streaming = 'watchInstances' | 'attach' | 'connectAgent' | 'migrateInstance'

/** A connection to a daemon, whose owner closes it. */
export interface DaemonClient {
  /**
   * The calls with one answer. A changing one has an idempotency key of its own: a call that loses its connection is sent
   * again, to the next daemon too, and happens once. Rejects with an `AgentError`.
   */
  readonly calls: Omit<ServiceClient<InstanceServiceDefinition>, Streaming>
  readonly secrets: ServiceClient<SecretServiceDefinition>
  readonly outOfBand: Pick<ServiceClient<OOBManagementDefinition>, 'reset'>
  /** The requests and answers are encoded messages. */
  stream(service: string, method: string, metadata?: Readonly<Record<string, string>>): StreamCall
  close(): void
}

/** No daemon answers: UNAVAILABLE, which a daemon itself answers for a machine that does not start. */
export class NoDaemon extends AgentError {
  constructor(message: string, cause: unknown) {
    super('UNAVAILABLE', message, { cause })
  }
}

/** How long a daemon that is gone may take to come back during a call. */
const RETURN_MS = 10_000
const RETRY_MS = 100

/** How long a daemon may take to greet, which it does at once. */
const GREETING_MS = 10_000

/**
 * Connects to the daemon at the socket `path`. Rejects with `NoDaemon` and the remedy in one line, also when the daemon does
 * not greet within 10 s or the caller's own time.
 */
export async function openDaemon(
  path: string,
  signal: AbortSignal,
  withinMs = GREETING_MS,
): Promise<DaemonClient> {
  let connection = await connect(path, signal, Math.min(withinMs, GREETING_MS))
  const calling: Calling = {
    call: async (service, method, payload, options = {}) => {
      const { timeoutMs = Number.POSITIVE_INFINITY } = options
      const until = performance.now() + timeoutMs
      const metadata = { ...options.metadata, ...(isRead(method) ? {} : { 'idempotency-key': randomUUID() }) }
      for (;;) {
        const left = Number.isFinite(timeoutMs) ? { timeoutMs: Math.max(1, until - performance.now()) } : {}
        try {
          return await connection.call(service, method, payload, { signal, ...options, ...left, metadata })
        } catch (error) {
          if (!(error instanceof ConnectionLost) || signal.aborted) throw error
          connection.close()
          connection = await reconnect(path, signal, Math.min(until, performance.now() + RETURN_MS))
        }
      }
    },
  }
  return {
    calls: clientFor(InstanceServiceDefinition, calling),
    secrets: clientFor(SecretServiceDefinition, calling),
    outOfBand: clientFor(OOBManagementDefinition, calling),
    stream: (service, method, metadata) => connection.stream(service, method, metadata),
    close: () => connection.close(),
  }
}

function isRead(method: string): boolean {
  return /^(Get|List)/.test(method)
}

async function reconnect(path: string, signal: AbortSignal, until: number): Promise<GrpcConnection> {
  for (;;) {
    try {
      return await connect(path, signal, Math.max(1, Math.ceil(until - performance.now())))
    } catch (error) {
      if (signal.aborted || performance.now() >= until)
        throw new NoDaemon(`the daemon has ended during the call: ${messageOf(error)}`, error)
    }
    await delay(RETRY_MS, undefined, { signal }).catch(() => signal.throwIfAborted())
  }
}

async function connect(path: string, signal: AbortSignal, greetingMs: number): Promise<GrpcConnection> {
  const { grpcConnection } = await import('../connection/grpc-connection.ts')
  const late = AbortSignal.timeout(greetingMs)
  const over = AbortSignal.any([signal, late])
  let connection: GrpcConnection | undefined
  try {
    connection = grpcConnection(await connectSocket({ path }, over))
    if (await abortable(connection.greeted, over)) return connection
    throw new AgentError('UNAVAILABLE', 'hung up before it greeted')
  } catch (error) {
    connection?.close()
    signal.throwIfAborted()
    const reason = late.aborted ? HANGS : (REASONS[errnoOf(error) ?? ''] ?? messageOf(error))
    throw new NoDaemon(`daemon at ${path}: ${reason}`, error)
  }
}

const HANGS = 'does not answer; it is stopped or hangs'

const START = 'start it with ./microvm daemon, or name its socket with --socket or MICROVM_SOCKET'

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: `does not run; ${START}`,
  ENOTDIR: `does not run; ${START}`,
  ECONNREFUSED: `does not run; ${START}`,
  ENOTSOCK: `not a socket; ${START}`,
  // More connections wait for it than the kernel keeps.
  EAGAIN: HANGS,
  EINVAL: 'the path is too long for a socket, want at most 107 bytes',
  EACCES: 'permission denied; run as root, or name the socket of your tenant with --socket or MICROVM_SOCKET',
  EPERM: 'permission denied; run as root, or name the socket of your tenant with --socket or MICROVM_SOCKET',
}
