import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { REQUESTS } from '../../gen/message-fields.ts'
import { limitsOf } from '../../rpc/call-limits.ts'
import { countElements, undecodable } from '../../rpc/count-elements.ts'
import { exhausted, type Totals } from '../../rpc/limits.ts'
import type { Failure, Method, MethodTable, Outcome, StreamMethod, StreamTable } from '../../rpc/method.ts'
import { statusOf } from '../../rpc/status.ts'
import { inCallersTrace } from '../../rpc/trace-scope.ts'
import type { Peer } from '../tls/credentials.ts'
import type { ControllerMetrics } from './metrics.ts'

export interface ControllerCall {
  /** Who has called, by its certificate. */
  readonly peer: Peer
  readonly signal: AbortSignal
  /** Sends metadata after the answer. */
  readonly setTrailer: (name: string, text: string) => void
}

type Unary<Request, Response> = (request: Request, call: ControllerCall) => Promise<Response>
type Streaming<Request, Response> = (request: Request, call: StreamingCall<Response>) => Promise<void>

interface StreamingCall<Response> extends Pick<ControllerCall, 'peer' | 'signal'> {
  /** What a caller that has hung up does not get is dropped. */
  readonly send: (response: Response) => void
}

interface MethodDefinition {
  readonly name: string
  readonly requestType: { decode(payload: Uint8Array): unknown }
  // `never`, because each method has messages of its own.
  readonly responseType: {
    encode(message: never): { finish(): Uint8Array }
    decode(payload: Uint8Array): unknown
  }
  readonly responseStream: boolean
}

interface ServiceDefinition {
  readonly fullName: string
  readonly methods: Readonly<Record<string, MethodDefinition>>
}

/** A missing RPC does not compile, nor does one of another form. */
export type ControllerMethods<Definition extends ServiceDefinition> = {
  readonly [Name in keyof Definition['methods']]: Definition['methods'][Name]['responseStream'] extends true
    ? Streaming<RequestOf<Definition, Name>, ResponseOf<Definition, Name>>
    : Unary<RequestOf<Definition, Name>, ResponseOf<Definition, Name>>
}

type RequestOf<Definition extends ServiceDefinition, Name extends keyof Definition['methods']> = ReturnType<
  Definition['methods'][Name]['requestType']['decode']
>
type ResponseOf<Definition extends ServiceDefinition, Name extends keyof Definition['methods']> = ReturnType<
  Definition['methods'][Name]['responseType']['decode']
>

export interface DeclaredMethod {
  /** Full name, such as `metropolis.proto.vm.VMController/RunLease`. */
  readonly name: string
  readonly definition: MethodDefinition
  readonly handle: Unary<unknown, unknown> | Streaming<unknown, unknown>
}

export interface ServeContext {
  readonly totals: Totals
  readonly metrics: ControllerMetrics
  readonly log: Logger
}

export function declaredMethods<Definition extends ServiceDefinition>(
  { fullName, methods }: Definition,
  handlers: ControllerMethods<Definition>,
): readonly DeclaredMethod[] {
  return Object.entries(methods).map(([key, definition]) => ({
    name: `${fullName}/${definition.name}`,
    definition,
    // `ControllerMethods` ties each handler to the messages of its method; Object.entries loses that tie.
    handle: handlers[key] as DeclaredMethod['handle'],
  }))
}

/** The methods for the callers of one connection. */
export function tablesFor(
  declared: readonly DeclaredMethod[],
  peer: Peer,
  context: ServeContext,
): { readonly methods: MethodTable; readonly streams: StreamTable } {
  const [streaming, unary] = [true, false].map((isStream) =>
    declared.filter(({ definition }) => definition.responseStream === isStream),
  )
  return {
    methods: new Map(
      unary?.map((method) => [method.name, { serve: serveUnary(method, peer, context), share: 'ordinary' }]),
    ),
    streams: new Map(streaming?.map((method) => [method.name, serveStream(method, peer, context)])),
  }
}

function serveUnary(method: DeclaredMethod, peer: Peer, context: ServeContext): Method {
  const { definition } = method
  // The table puts handlers of this form here.
  const handle = method.handle as Unary<unknown, unknown>
  return async (payload, incoming) => {
    const limits = limitsOf(incoming)
    const { signal } = limits
    const trailers: Record<string, string> = {}
    const setTrailer = (name: string, text: string) => {
      trailers[name] = text
    }
    let elements = 0
    try {
      signal.throwIfAborted()
      elements = takeElements(method.name, payload, context.totals)
      const request = decoded(definition, payload)
      const work = inCallersTrace(incoming, () => handle(request, { peer, signal, setTrailer }))
      const response = await abortable(work, signal)
      return ended(method, peer, context, { ok: true, payload: encoded(definition, response), trailers })
    } catch (error) {
      return ended(method, peer, context, { ok: false, ...statusOf(error) })
    } finally {
      context.totals.give('elements', elements)
      limits.release()
    }
  }
}

function serveStream(method: DeclaredMethod, peer: Peer, context: ServeContext): StreamMethod {
  const { definition } = method
  const handle = method.handle as Streaming<unknown, unknown>
  const succeed = () => {
    ended(method, peer, context, { ok: true, payload: NOTHING })
    return undefined
  }
  const fail = (error: unknown): Failure =>
    ended(method, peer, context, { ok: false, ...statusOf(error) } as const)
  return (payload, { hangup: signal }, send) => {
    const call = { peer, signal, send: (response: unknown) => void send(encoded(definition, response)) }
    try {
      return handle(decoded(definition, payload), call).then(succeed, fail)
    } catch (error) {
      return Promise.resolve(fail(error))
    }
  }
}

const NOTHING = new Uint8Array(0)

/** A request takes its part of what all requests may have. */
function takeElements(name: string, payload: Uint8Array, totals: Totals): number {
  const elements = countElements(payload, REQUESTS[name])
  const refusal = totals.take('elements', elements, 'ordinary')
  if (refusal !== undefined) throw exhausted(refusal)
  return elements
}

function decoded({ requestType }: MethodDefinition, payload: Uint8Array): unknown {
  try {
    return requestType.decode(payload)
  } catch (error) {
    throw undecodable(error)
  }
}

function encoded({ responseType }: MethodDefinition, response: unknown): Uint8Array {
  // `ControllerMethods` ties the handler's answer to this type.
  return responseType.encode(response as never).finish()
}

function ended<Answer extends Outcome>(
  { name }: DeclaredMethod,
  { id }: Peer,
  { log, metrics }: ServeContext,
  outcome: Answer,
): Answer {
  const code = outcome.ok ? 'OK' : outcome.code
  metrics.countCall(name, code)
  if (!outcome.ok && code !== 'CANCELLED')
    log.warn('rpc', { rpc: name, peer: id, code, error: outcome.message })
  return outcome
}

/** Throws PERMISSION_DENIED unless the caller is the host of this id. */
export function checkHost({ peer }: Pick<ControllerCall, 'peer'>, id: string, field: string): void {
  if (peer.role === 'host' && peer.id === id) return
  throw new AgentError(
    'PERMISSION_DENIED',
    `${field}: host ${id}, but the certificate is of ${peer.role} ${peer.id}`,
  )
}
