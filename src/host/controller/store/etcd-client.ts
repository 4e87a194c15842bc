import { connect as connectTls } from 'node:tls'
import { abortable } from '../../../base/abort.ts'
import { AgentError, messageOf, type StatusCodeName } from '../../../base/errors.ts'
import { connectSocket } from '../../../client/connection/connect-socket.ts'
import {
  type GrpcConnection,
  grpcConnection,
  type StreamCall,
} from '../../../client/connection/grpc-connection.ts'
import {
  KVDefinition,
  LeaseDefinition,
  LeaseGrantRequest,
  LeaseGrantResponse,
  LeaseKeepAliveRequest,
  LeaseKeepAliveResponse,
  LeaseRevokeRequest,
  RangeRequest,
  RangeResponse,
  type ResponseHeader,
  TxnRequest,
  TxnResponse,
} from '../../../gen/etcd/rpc.ts'
import { type Endpoint, endpointText } from '../../tls/endpoint.ts'

export interface EtcdOptions {
  /** Of the members, at least one. */
  readonly endpoints: readonly Endpoint[]
  /** Texts in PEM; undefined for connections without TLS. */
  readonly tls?: { readonly ca: string; readonly cert?: string; readonly key?: string } | undefined
  /** Called with the time that a request took, or with its failure. */
  readonly onCall?: (seconds: number, code: StatusCodeName) => void
}

export interface TxnOutcome extends TxnResponse {
  /** An earlier attempt of the same transaction may have been carried out, although its answer was lost. */
  readonly isRepeated: boolean
}

/** How long one member may take. A member that has lost the others does not answer. */
const ATTEMPT_MS = 1500
/** How long a request may take in all. */
const CALL_MS = 5000
const CONNECT_MS = 1000
const PAUSE_MS = 100
const KEEP_ALIVE_MS = 5000

/**
 * A client of etcd's members: a request goes to the next member when one does not answer. Each method rejects with an
 * `AgentError`, UNAVAILABLE within 6 s when no member answers, and RESOURCE_EXHAUSTED when etcd is full.
 */
export class EtcdClient {
  readonly #options: EtcdOptions
  readonly #closed = new AbortController()
  /** Counts on with each member that is left. */
  #current = 0
  #connection: Promise<GrpcConnection> | undefined
  #clusterId: bigint | undefined

  constructor(options: EtcdOptions) {
    this.#options = options
  }

  async range(request: Parameters<typeof RangeRequest.fromPartial>[0]): Promise<RangeResponse> {
    const payload = RangeRequest.encode(RangeRequest.fromPartial(request)).finish()
    const { answer } = await this.#call(KVDefinition.fullName, 'Range', payload)
    return this.#checked(RangeResponse.decode(answer))
  }

  /** Nothing is sent once `given` fires. */
  async txn(request: Parameters<typeof TxnRequest.fromPartial>[0], given?: AbortSignal): Promise<TxnOutcome> {
    const payload = TxnRequest.encode(TxnRequest.fromPartial(request)).finish()
    const { answer, isRepeated } = await this.#call(KVDefinition.fullName, 'Txn', payload, given)
    return { ...this.#checked(TxnResponse.decode(answer)), isRepeated }
  }

  /** Returns the lease's id: the given one, or one of etcd's choice. A lease of that id may be there already. */
  async grantLease(ttlSeconds: number, id = 0n): Promise<bigint> {
    const payload = LeaseGrantRequest.encode({ TTL: BigInt(ttlSeconds), ID: id }).finish()
    try {
      const { answer } = await this.#call(LeaseDefinition.fullName, 'LeaseGrant', payload)
      return this.#checked(LeaseGrantResponse.decode(answer)).ID
    } catch (error) {
      if (id !== 0n && messageOf(error).includes('lease already exists')) return id
      throw error
    }
  }

  /** Extends a lease to its whole time. The answer's TTL is 0 when the lease has ended. */
  async keepAlive(id: bigint): Promise<LeaseKeepAliveResponse> {
    const payload = LeaseKeepAliveRequest.encode({ ID: id }).finish()
    const { answer } = await this.#attempts(async (connection) => {
      const stream = connection.stream(LeaseDefinition.fullName, 'LeaseKeepAlive')
      const late = setTimeout(() => stream.cancel(), ATTEMPT_MS)
      try {
        await stream.send(payload)
        const { value } = await stream.answers.next()
        if (value === undefined) throw new AgentError('UNAVAILABLE', 'etcd ended the stream')
        return value
      } finally {
        clearTimeout(late)
        stream.cancel()
      }
    })
    return this.#checked(LeaseKeepAliveResponse.decode(answer))
  }

  async revokeLease(id: bigint): Promise<void> {
    await this.#call(LeaseDefinition.fullName, 'LeaseRevoke', LeaseRevokeRequest.encode({ ID: id }).finish())
  }

  /** A stream to the present member. It ends with its connection, or when the member has lost the others. */
  async stream(service: string, method: string): Promise<StreamCall> {
    const connection = await this.#connected()
    return connection.stream(service, method, { hasleader: 'true' })
  }

  /** The next requests go to another member. */
  leave(): void {
    this.#current += 1
    const left = this.#connection
    this.#connection = undefined
    left?.then((connection) => connection.close()).catch(() => {})
  }

  close(): void {
    this.#closed.abort(new AgentError('CANCELLED', 'etcd: the client is closed'))
    this.leave()
  }

  #call(
    service: string,
    method: string,
    payload: Uint8Array,
    given?: AbortSignal,
  ): Promise<{ readonly answer: Uint8Array; readonly isRepeated: boolean }> {
    return this.#attempts((connection, timeoutMs) => {
      given?.throwIfAborted()
      return connection.call(service, method, payload, { timeoutMs })
    }, given)
  }

  async #attempts(
    work: (connection: GrpcConnection, timeoutMs: number) => Promise<Uint8Array>,
    given?: AbortSignal,
  ): Promise<{ readonly answer: Uint8Array; readonly isRepeated: boolean }> {
    const { signal } = this.#closed
    const begun = performance.now()
    let isRepeated = false
    for (let attempt = 1; ; attempt++) {
      signal.throwIfAborted()
      const index = this.#current
      let isSent = false
      try {
        const connected = await this.#connected()
        isSent = true
        const answer = await abortable(work(connected, ATTEMPT_MS), signal)
        this.#tell(begun, 'OK')
        return { answer, isRepeated }
      } catch (error) {
        given?.throwIfAborted()
        const failure = etcdFailure(error)
        if (!MAY_PASS.includes(failure.code)) {
          this.#tell(begun, failure.code)
          throw failure
        }
        isRepeated ||= isSent
        // Another request may have turned to the next member already.
        if (index === this.#current) this.leave()
        if (performance.now() - begun >= CALL_MS - ATTEMPT_MS) {
          this.#tell(begun, 'UNAVAILABLE')
          throw this.#unanswered(failure)
        }
      }
      if (attempt % this.#options.endpoints.length === 0) await abortable(pause(PAUSE_MS * attempt), signal)
    }
  }

  #connected(): Promise<GrpcConnection> {
    if (this.#connection !== undefined) return this.#connection
    const dialed = this.#dial()
    this.#connection = dialed
    const forget = () => {
      if (this.#connection === dialed) this.#connection = undefined
    }
    dialed.then((connection) => connection.closed.then(forget), forget)
    return dialed
  }

  async #dial(): Promise<GrpcConnection> {
    const { endpoints, tls } = this.#options
    const endpoint = endpoints[this.#current % endpoints.length]
    if (endpoint === undefined) throw new Error('etcd: no endpoint')
    const over = AbortSignal.any([this.#closed.signal, AbortSignal.timeout(CONNECT_MS)])
    const socket = await connectSocket(endpoint, over).catch((error) => {
      throw new AgentError('UNAVAILABLE', `etcd at ${endpointText(endpoint)}: ${messageOf(error)}`)
    })
    socket.setKeepAlive(true, KEEP_ALIVE_MS).setNoDelay()
    const secured =
      tls === undefined
        ? socket
        : connectTls({ ...tls, socket, ALPNProtocols: ['h2'], servername: nameOf(endpoint) })
    const connection = grpcConnection(secured)
    try {
      if (await abortable(connection.greeted, over)) return connection
      throw new AgentError('UNAVAILABLE', 'hung up before it greeted')
    } catch (error) {
      connection.close()
      throw new AgentError('UNAVAILABLE', `etcd at ${endpointText(endpoint)}: ${messageOf(error)}`)
    }
  }

  /** Throws UNAVAILABLE for an answer of another cluster: its keys tell nothing of this one's. */
  #checked<Answer extends { readonly header?: ResponseHeader | undefined }>(answer: Answer): Answer {
    const { clusterId } = answer.header ?? {}
    this.#clusterId ??= clusterId
    if (clusterId === this.#clusterId) return answer
    this.leave()
    throw new AgentError('UNAVAILABLE', `etcd: cluster ${clusterId}, want ${this.#clusterId}`)
  }

  #tell(begun: number, code: StatusCodeName): void {
    this.#options.onCall?.((performance.now() - begun) / 1000, code)
  }

  #unanswered(cause: AgentError): AgentError {
    const names = this.#options.endpoints.map(endpointText).join(', ')
    return new AgentError('UNAVAILABLE', `etcd at ${names}: no answer in ${CALL_MS} ms`, { cause })
  }
}

const MAY_PASS: readonly StatusCodeName[] = [
  'UNAVAILABLE',
  'DEADLINE_EXCEEDED',
  'CANCELLED',
  'INTERNAL',
  'UNKNOWN',
]

function etcdFailure(error: unknown): AgentError {
  if (!(error instanceof AgentError)) throw error
  if (error.code !== 'RESOURCE_EXHAUSTED') return error
  const text = `etcd: ${error.message.replace(/^etcdserver: /, '')}, want it compacted, defragmented and its alarm disarmed`
  return new AgentError(error.code, text)
}

/** A name for TLS, which takes no addresses. */
function nameOf({ host }: Endpoint): string {
  return /^[\d.]+$|:/.test(host) ? '' : host
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref())
}
