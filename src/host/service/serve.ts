import { createHash } from 'node:crypto'
import { abortable, cancelled, neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { REQUESTS } from '../../gen/message-fields.ts'
import { limitsOf } from '../../rpc/call-limits.ts'
import { canonicalBytes } from '../../rpc/canonical.ts'
import { countElements, undecodable } from '../../rpc/count-elements.ts'
import { encode } from '../../rpc/encode.ts'
import { exhausted, type Totals } from '../../rpc/limits.ts'
import {
  type DuplexMethod,
  type DuplexTable,
  type Failure,
  IDEMPOTENCY_KEY,
  type IncomingCall,
  type Method,
  type MethodTable,
  type Outcome,
  type StreamMethod,
  type StreamTable,
} from '../../rpc/method.ts'
import { statusOf } from '../../rpc/status.ts'
import { inCallersTrace } from '../../rpc/trace-scope.ts'
import type { Peer } from '../tls/credentials.ts'
import type { CallJournal } from './call-journal.ts'
import type { HostCalls, OpenCall } from './host-calls.ts'
import type { AnyRpc, DeclaredMethod, ServiceCall } from './rpc.ts'

export interface ServeContext {
  readonly calls: HostCalls
  readonly journal: CallJournal
  readonly totals: Totals
  readonly log: Logger
  /** Of a monotonic clock. */
  readonly nowMs: () => number
  /** Ends streams, which would go on for ever. */
  readonly stopping: AbortSignal
}

export interface ServedTables {
  readonly methods: MethodTable
  readonly streams: StreamTable
  readonly duplexes: DuplexTable
}

/** Of one tenant. A change goes on without its caller, so an impatient one could begin any number. */
const MOST_OPEN_CALLS = 4096

/** Of one request in a stream of bytes: what a socket is read by. */
const MESSAGE_BYTES = 64 * 1024 + 256

/** Who calls by a socket. Without a tenant it is the administrator, and with a peer only where that may act as one. */
export interface SocketCaller {
  readonly tenant?: string | undefined
  readonly peer?: Peer | undefined
}

/** The declared methods for the callers of one socket. */
export function servedTables(
  declared: readonly DeclaredMethod[],
  context: ServeContext,
  caller: SocketCaller,
): ServedTables {
  const methods: [string, MethodTable extends ReadonlyMap<string, infer Served> ? Served : never][] = []
  const streams: [string, StreamMethod][] = []
  const duplexes: [string, DuplexTable extends ReadonlyMap<string, infer Served> ? Served : never][] = []
  for (const method of declared) {
    const { name } = method
    const served = new ServedRpc(method, context, caller)
    if ('handle' in method.rpc) methods.push([name, { serve: served.unary(), share: 'ordinary' }])
    else if ('handleStream' in method.rpc) streams.push([name, served.stream()])
    else duplexes.push([name, { serve: served.duplex(), messageBytes: MESSAGE_BYTES }])
  }
  return { methods: new Map(methods), streams: new Map(streams), duplexes: new Map(duplexes) }
}

/** Decodes requests, checks the caller's role, turns errors into statuses, counts calls, and logs those that change. */
class ServedRpc {
  readonly #method: DeclaredMethod
  readonly #context: ServeContext
  readonly #tenant: string | undefined
  readonly #peer: Peer | undefined

  constructor(method: DeclaredMethod, context: ServeContext, { peer, tenant }: SocketCaller) {
    this.#method = method
    this.#context = context
    this.#tenant = tenant
    this.#peer = peer
  }

  unary(): Method {
    const { rpc, types } = this.#method
    if (!('handle' in rpc)) throw new Error(`${this.#method.name}: not unary`)
    return async (payload, incoming) => {
      const limits = limitsOf(incoming)
      let work: Promise<Uint8Array> | undefined
      let elements = 0
      const open = this.#begin()
      const end = () => {
        this.#context.totals.give('elements', elements)
        open.ended()
      }
      try {
        elements = this.#takeElements(payload)
        const request = this.#decode(payload, open)
        limits.signal.throwIfAborted()
        const given = { incoming, open, signal: limits.signal }
        const handle = async (call: ServiceCall) => encode(types.response, await rpc.handle(request, call))
        work = inCallersTrace(incoming, () => this.#answer(request, given, handle))
        const answer = await abortable(work, limits.signal)
        return this.#answered(open, { ok: true, payload: answer })
      } catch (error) {
        return this.#answered(open, { ok: false, ...statusOf(error) })
      } finally {
        limits.release()
        if (work === undefined) end()
        else work.then(end, end)
      }
    }
  }

  stream(): StreamMethod {
    const { rpc, types } = this.#method
    if (!('handleStream' in rpc)) throw new Error(`${this.#method.name}: not a stream`)
    return (payload, incoming, send) =>
      this.#streamed(incoming, send, (open, call) =>
        encodedBy(
          (message) => encode(types.response, message),
          rpc.handleStream(this.#decode(payload, open), call),
        ),
      )
  }

  duplex(): DuplexMethod {
    const { rpc, types } = this.#method
    if (!('handleDuplex' in rpc)) throw new Error(`${this.#method.name}: not a stream`)
    return (payloads, incoming, send) =>
      this.#streamed(incoming, send, (open, call) => {
        const decode = (payload: Uint8Array) => this.#decode(payload, open)
        const requests = async function* () {
          for await (const payload of payloads) yield decode(payload)
        }
        const encodeOne = rpc.encoder?.() ?? ((message: unknown) => encode(types.response, message))
        return encodedBy(encodeOne, rpc.handleDuplex(requests(), call))
      })
  }

  async #streamed(
    incoming: IncomingCall,
    send: (message: Uint8Array) => Promise<void>,
    answers: (open: OpenCall, call: ServiceCall) => AsyncIterable<Uint8Array>,
  ): Promise<Failure | undefined> {
    const open = this.#begin()
    const { signal, release } = this.#endOf(incoming)
    try {
      this.#checkRole()
      await inCallersTrace(incoming, async () => {
        for await (const answer of answers(open, this.#callOf({ incoming, open, signal }))) {
          await send(answer)
          signal.throwIfAborted()
        }
      })
      this.#answered(open, { ok: true, payload: NOTHING })
      return undefined
    } catch (error) {
      const failure = { ok: false, ...statusOf(signal.aborted ? signal.reason : error) } as const
      this.#answered(open, failure)
      return failure
    } finally {
      release()
      open.ended()
    }
  }

  /** A signal that fires when the caller hangs up or the daemon stops. */
  #endOf({ hangup }: IncomingCall): { readonly signal: AbortSignal; readonly release: () => void } {
    const { stopping } = this.#context
    const controller = new AbortController()
    const onHangup = () => controller.abort(cancelled())
    const onStop = () => controller.abort(stopping.reason)
    hangup.addEventListener('abort', onHangup, { once: true })
    stopping.addEventListener('abort', onStop, { once: true })
    if (stopping.aborted) onStop()
    return {
      signal: controller.signal,
      release: () => {
        hangup.removeEventListener('abort', onHangup)
        stopping.removeEventListener('abort', onStop)
      },
    }
  }

  /** Through the journal when the call changes something and has a key. */
  #answer(
    request: unknown,
    given: GivenCall,
    work: (call: ServiceCall) => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    this.#checkRole()
    const { name, rpc, types } = this.#method
    const idempotencyKey = isRecorded(rpc) ? given.incoming.metadata?.(IDEMPOTENCY_KEY) : undefined
    if (idempotencyKey === undefined) return work(this.#callOf(given))
    const canonical = canonicalBytes(types.request, request)
    // The call's instance is a part of what is asked for.
    const digest = createHash('sha256')
      .update(given.incoming.metadata?.('instance') ?? '')
      .update('\0')
      .update(canonical)
    const frees = 'handle' in rpc && rpc.frees?.(request) === true
    const call = { tenant: this.#tenant ?? '', idempotencyKey, method: name, digest: digest.digest(), frees }
    // Others may wait for its outcome, too.
    const own = { ...given, signal: neverAborted }
    const callKey = `${call.tenant}/${idempotencyKey}`
    return this.#context.journal.run(call, (begunMs) =>
      work({ ...this.#callOf(own), callKey, isRepeated: begunMs !== undefined, begunMs }),
    )
  }

  #begin(): OpenCall {
    return this.#context.calls.begin(this.#method.name, this.#tenant ?? '')
  }

  #takeElements(payload: Uint8Array): number {
    const { calls, totals } = this.#context
    if (calls.openOf(this.#tenant ?? '') > MOST_OPEN_CALLS)
      throw exhausted(`calls that have not ended: more than ${MOST_OPEN_CALLS}`)
    const elements = countElements(payload, REQUESTS[this.#method.name])
    const refusal = totals.take('elements', elements, 'ordinary')
    if (refusal !== undefined) throw exhausted(refusal)
    return elements
  }

  #decode(payload: Uint8Array, open: OpenCall): unknown {
    const { types } = this.#method
    try {
      const request = types.request.decode(payload)
      open.key = keyOf(request) ?? open.key
      return request
    } catch (error) {
      throw undecodable(error)
    }
  }

  #checkRole(): void {
    const { name, rpc } = this.#method
    if (rpc.role === 'admin' && this.#tenant !== undefined)
      throw new AgentError('PERMISSION_DENIED', `${name}: for the administrator only`)
    const peer = this.#peer
    if (peer !== undefined && rpc.remote?.includes(peer.role) !== true)
      throw new AgentError('PERMISSION_DENIED', `${name}: not for ${peer.role} ${peer.id}`)
  }

  #callOf({ incoming, open, signal }: GivenCall): ServiceCall {
    const metadata = incoming.metadata ?? (() => undefined)
    if (open.key === '') open.key = metadata('instance') ?? ''
    const inStep = (step: string) => {
      open.step = step
    }
    return { tenant: this.#tenant, peer: this.#peer, signal, inStep, metadata }
  }

  #answered<Answer extends Outcome>(open: OpenCall, outcome: Answer): Answer {
    const { log, nowMs } = this.#context
    open.answered(outcome.ok ? 'OK' : outcome.code)
    const level = isChange(this.#method.rpc) ? (outcome.ok ? 'info' : 'warn') : 'debug'
    if (log.isLogged(level)) {
      const { method: rpc, key, tenant, startedMs } = open
      const result = outcome.ok ? { code: 'OK' } : { code: outcome.code, error: outcome.message }
      log.log(level, 'rpc', {
        rpc,
        key: key || undefined,
        tenant: tenant || undefined,
        ms: (nowMs() - startedMs).toFixed(1),
        ...result,
      })
    }
    return outcome
  }
}

interface GivenCall {
  readonly incoming: IncomingCall
  readonly open: OpenCall
  readonly signal: AbortSignal
}

const NOTHING = new Uint8Array(0)

function isChange({ onDaemonDeath }: AnyRpc): boolean {
  return onDaemonDeath !== 'read'
}

function isRecorded(rpc: AnyRpc): boolean {
  return isChange(rpc) && !('isUnrecorded' in rpc && rpc.isUnrecorded)
}

async function* encodedBy<Message>(
  encodeOne: (message: Message) => Uint8Array,
  messages: AsyncIterable<Message>,
): AsyncGenerator<Uint8Array, void> {
  for await (const message of messages) yield encodeOne(message)
}

/** The key of the instance, cut for logs. */
function keyOf(request: unknown): string | undefined {
  if (typeof request !== 'object' || request === null) return undefined
  const { properties = request } = 'properties' in request ? request : {}
  if (typeof properties !== 'object' || properties === null || !('key' in properties)) return undefined
  return typeof properties.key === 'string' && properties.key !== ''
    ? properties.key.slice(0, 128)
    : undefined
}
