import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, ConnectionLost, errnoOf, messageOf } from '../base/errors.ts'
import { HealthDefinition } from '../gen/health.ts'
import { clientFor } from '../rpc/client.ts'
import type { TtrpcClient } from '../rpc/ttrpc/client.ts'
import { type Address, addressText } from './connection/address.ts'
import { connectAgent, connectOnce, type Dialer, type Protocol } from './connection/connect-agent.ts'
import { dial } from './connection/dial.ts'
import { AGENT, identifyPeer, SILENT } from './connection/identify-peer.ts'

export interface SessionOptions {
  readonly address: Address
  readonly protocol: Protocol
  /** How long to retry until the agent answers; undefined makes one try of at most 5 s. */
  readonly waitMs?: number | undefined
  readonly signal: AbortSignal
}

/** A connection to an agent that answers. Its owner closes it. */
export type Session = Pick<TtrpcClient, 'call' | 'close' | 'closed'>

const IDENTIFY_MS = 2_000

/** Connects to an agent. Rejects with UNAVAILABLE and one line: what is there instead, and what to do. */
export async function openSession(options: SessionOptions): Promise<Session> {
  const { address, protocol, signal, waitMs } = options
  const late = new AbortController()
  let lastFailure: unknown
  const link: Dialer = {
    connect: async (each) => {
      try {
        const socket = await dial(address, each)
        lastFailure = undefined
        return socket
      } catch (error) {
        // The end of the wait says nothing about the address.
        if (!late.signal.aborted) lastFailure = error
        throw error
      }
    },
  }
  const timer = waitMs === undefined ? undefined : setTimeout(() => late.abort(), waitMs)
  let client: TtrpcClient
  try {
    client =
      waitMs === undefined
        ? await connectOnce(link, signal, protocol)
        : await connectAgent(link, AbortSignal.any([signal, late.signal]), protocol)
  } catch (error) {
    signal.throwIfAborted()
    throw new AgentError('UNAVAILABLE', await failureText(lastFailure ?? error, options), { cause: error })
  } finally {
    clearTimeout(timer)
  }
  return watched(client)
}

/** One try to connect, of at most 5 s. Rejects with an errno or UNAVAILABLE, or with what the daemon between says. */
export async function dialSession({ address, protocol, signal }: SessionOptions): Promise<Session> {
  let said: unknown
  const connect = async (each: AbortSignal) => {
    const socket = await dial(address, each)
    return socket.once('error', (error) => {
      said = error
    })
  }
  try {
    return watched(await connectOnce({ connect }, signal, protocol))
  } catch (error) {
    throw said instanceof AgentError ? said : error
  }
}

async function failureText(error: unknown, { address, protocol, waitMs }: SessionOptions): Promise<string> {
  const where = addressText(address)
  if (error instanceof AgentError && error.code === 'FAILED_PRECONDITION') return `${where}: ${error.message}`
  const waited = waitMs === undefined ? '' : `no answer within ${waitMs / 1000} s: `
  const errno = errnoOf(error)
  const reason = errno === undefined ? undefined : DIAL_FAILURES[errno]
  if (reason !== undefined) return `${where}: ${waited}${reason}`
  const peer = await peerText(address)
  if (peer === AGENT)
    return `${where}: ${waited}the agent was too slow, and answers now; wait for it with --wait`
  const remedy = /HTTP\/2/.test(peer) && protocol === 'ttrpc' ? 'try --protocol grpc' : REMEDIES[address.kind]
  const who = peer === SILENT ? 'not the agent, or one that hangs' : 'not the agent'
  return `${where}: ${waited}${peer}, ${who}; ${remedy}`
}

const DIAL_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'no such socket; check the path, or wait for the agent with --wait',
  ENOTDIR: 'no such socket; check the path',
  ENOTSOCK: 'not a socket; check the path',
  ECONNREFUSED: 'nothing listens there; check the address, or wait for the agent with --wait',
  ECONNRESET: 'the connection is refused; check the port, or wait for the agent with --wait',
  EACCES: 'permission denied; run as a user who may open it, such as root',
  EPERM: 'permission denied; run as a user who may open it, such as root',
  ENODEV: 'no vsock to that guest; check the CID and that the guest runs',
  ENETUNREACH: 'no route to it; check the address',
  EHOSTUNREACH: 'no route to it; check the address',
  ENOTFOUND: 'no host of that name; check the address',
  EAI_AGAIN: 'the host name could not be resolved; check the address',
  ETIMEDOUT: 'no answer; check the address and that the guest runs',
}

const REMEDIES: Readonly<Record<Address['kind'], string>> = {
  vsock: 'check the port (the agent has 1024), or wait for it with --wait',
  hvsock: 'check the port (the agent has 1024), or wait for it with --wait',
  unix: 'check the path (a VMM socket wants hvsock://PATH:PORT)',
  tcp: 'check the port',
  instance: 'see ./microvm inspect, or wait for the agent with --wait',
}

async function peerText(address: Address): Promise<string> {
  try {
    return await identifyPeer(await dial(address, AbortSignal.timeout(IDENTIFY_MS)))
  } catch (error) {
    return messageOf(error)
  }
}

/** The interval of health checks, and the time limit of each. */
const HEALTH_MS = 10_000

/** Ends all calls when the agent answers no health check, because calls may have no time limit. */
function watched(client: TtrpcClient): Session {
  const gone = new AbortController()
  const closed = new AbortController()
  void client.closed.then(() => closed.abort())
  void watchHealth(client, gone, closed.signal)
  return {
    call: (service, method, payload, options = {}) => {
      const signals = options.signal === undefined ? [gone.signal] : [options.signal, gone.signal]
      return client.call(service, method, payload, { ...options, signal: AbortSignal.any(signals) })
    },
    close: () => {
      closed.abort()
      client.close()
    },
    closed: client.closed,
  }
}

async function watchHealth(client: TtrpcClient, gone: AbortController, closed: AbortSignal): Promise<void> {
  const { check } = clientFor(HealthDefinition, client)
  try {
    while (!closed.aborted) {
      await delay(HEALTH_MS, undefined, { signal: closed, ref: false })
      await check({}, { signal: closed, timeoutMs: HEALTH_MS })
    }
  } catch {
    if (closed.aborted) return
    gone.abort(new ConnectionLost(`the agent answers no health check within ${HEALTH_MS / 1000} s`))
  }
}
