import { randomBytes } from 'node:crypto'
import { type HrTime, type SpanContext, SpanKind, SpanStatusCode } from '@opentelemetry/api'
import { parseTraceParent } from '@opentelemetry/core'
import type { LogFields, Logger } from '../../base/log.ts'
import { truncate } from '../../base/truncate.ts'
import type { IncomingCall } from '../../rpc/method.ts'
import type { CommonOfSpans, FinishedSpan } from './finished-span.ts'
import type { CallTrace, Tracer } from './tracer.ts'

export interface CallTracerDependencies {
  readonly log: Logger
  /** Milliseconds of a monotonic clock. */
  readonly nowMs: () => number
  /** The time of day in milliseconds. */
  readonly unixMs: () => number
  readonly common: CommonOfSpans
  /** Takes a span that is over. */
  readonly add: (span: FinishedSpan) => void
}

/** Bit 0 of the flags: the caller wants the call traced. */
const SAMPLED = 1

/** Bytes of what a step is about, such as a path. */
const MOST_DETAIL = 256

const STATUS_OF = { failed: { code: SpanStatusCode.ERROR }, done: { code: SpanStatusCode.UNSET } }

/** Makes a span of each call, below the span that its caller has named, and one of each of its steps below that. */
export function callTracer(dependencies: CallTracerDependencies): Tracer {
  const { log } = dependencies
  let hasWarned = false
  return {
    begin(rpc, incoming) {
      const { traceparent } = incoming
      const parent = traceparent === undefined ? undefined : parseTraceParent(traceparent)
      // A caller that sends a wrong one sends it with every call.
      if (parent === null && !hasWarned) {
        hasWarned = true
        log.warn('traceparent ignored', { rpc, peer: incoming.peer, because: 'no trace context of W3C' })
      }
      if (parent && (parent.traceFlags & SAMPLED) === 0) return undefined
      return traceCall(dependencies, rpc, incoming, parent ?? undefined)
    },
  }
}

/** What begins a span. */
interface Beginning {
  readonly name: string
  readonly kind: SpanKind
  readonly context: SpanContext
  readonly parent: SpanContext | undefined
}

function traceCall(
  { nowMs, unixMs, common, add }: CallTracerDependencies,
  rpc: string,
  { framing, peer }: IncomingCall,
  parent: SpanContext | undefined,
): CallTrace {
  // All spans of a call are on one clock, which no setting of the time moves.
  const offsetMs = unixMs() - nowMs()
  const begin = (beginning: Beginning) => {
    const startMs = nowMs()
    return (attributes: FinishedSpan['attributes'], isFailed: boolean) => {
      const endMs = nowMs()
      const { context, parent: above } = beginning
      add({
        ...common,
        ...{ name: beginning.name, kind: beginning.kind, attributes },
        spanContext: () => context,
        ...(above && { parentSpanContext: above }),
        startTime: timeOf(offsetMs + startMs),
        endTime: timeOf(offsetMs + endMs),
        duration: timeOf(endMs - startMs),
        status: isFailed ? STATUS_OF.failed : STATUS_OF.done,
      })
    }
  }
  const traceId = parent?.traceId ?? randomBytes(16).toString('hex')
  const own = contextIn(traceId)
  const slash = rpc.lastIndexOf('/')
  const end = begin({ name: rpc, kind: SpanKind.SERVER, context: own, parent })
  return {
    step(name, detail) {
      const endStep = begin({ name, kind: SpanKind.INTERNAL, context: contextIn(traceId), parent: own })
      return (error) =>
        endStep(detail === '' ? {} : { detail: truncate(detail, MOST_DETAIL) }, error !== undefined)
    },
    end(ids, code) {
      const attributes = {
        ...{ 'rpc.system': framing, 'rpc.service': rpc.slice(0, slash), 'rpc.method': rpc.slice(slash + 1) },
        ...{ 'network.peer.address': peer, 'rpc.status': code ?? 'OK' },
      }
      end({ ...attributes, ...textsOf(ids) }, code !== undefined)
    },
  }
}

function contextIn(traceId: string): SpanContext {
  return { traceId, spanId: randomBytes(8).toString('hex'), traceFlags: SAMPLED }
}

/** The ids of a request that has them. */
function textsOf(ids: LogFields): Record<string, string> {
  const given = Object.entries(ids).flatMap(([name, value]) =>
    typeof value === 'string' ? [[name, value]] : [],
  )
  return Object.fromEntries(given)
}

/** Seconds and nanoseconds. */
function timeOf(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000)
  return [seconds, Math.min(999_999_999, Math.round((ms - seconds * 1000) * 1e6))]
}
