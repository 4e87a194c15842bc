import type { LogFields, Logger } from '../../base/log.ts'
import { truncate } from '../../base/truncate.ts'
import type { IncomingCall } from '../../rpc/method.ts'
import { newSpanId, newTraceId, parseTraceparent, type TraceContext } from '../../rpc/traceparent.ts'
import type { FinishedSpan } from '../../rpc/tracing/finished-span.ts'
import type { CallTrace, Tracer } from './tracer.ts'

export interface TracerContext {
  readonly log: Logger
  /** Milliseconds of a monotonic clock. */
  readonly nowMs: () => number
  /** Milliseconds since 1970. */
  readonly unixMs: () => number
  readonly add: (span: FinishedSpan) => void
}

/** The most characters of a step's detail. */
const MOST_DETAIL = 256

/** Each call has a span below its caller's span, and each step has one below its call's. */
export function callTracer(dependencies: TracerContext): Tracer {
  const { log } = dependencies
  let hasWarned = false
  return {
    begin(rpc, incoming) {
      const { traceparent } = incoming
      const parent = traceparent === undefined ? undefined : parseTraceparent(traceparent)
      // Logged once, because the caller would send the invalid value with every call.
      if (traceparent !== undefined && parent === undefined && !hasWarned) {
        hasWarned = true
        log.warn('traceparent ignored', { rpc, peer: incoming.peer, because: 'no trace context of W3C' })
      }
      return parent?.isSampled === false ? undefined : traceCall(dependencies, rpc, incoming, parent)
    },
  }
}

function traceCall(
  { nowMs, unixMs, add }: TracerContext,
  rpc: string,
  { framing, peer }: IncomingCall,
  parent: TraceContext | undefined,
): CallTrace {
  // One offset per call, so that setting the time does not shift its spans against each other.
  const offsetMs = unixMs() - nowMs()
  const traceId = parent?.traceId ?? newTraceId()
  const begin = (span: Pick<FinishedSpan, 'name' | 'kind' | 'parentSpanId'>) => {
    const [spanId, startMs] = [newSpanId(), nowMs()]
    const end = (attributes: FinishedSpan['attributes'], isFailed: boolean) => {
      const [startNs, endNs] = [nanoseconds(offsetMs + startMs), nanoseconds(offsetMs + nowMs())]
      add({ ...span, traceId, spanId, startNs, endNs, attributes, isFailed })
    }
    return { spanId, end }
  }
  const call = begin({ name: rpc, kind: 'call', parentSpanId: parent?.spanId })
  const slash = rpc.lastIndexOf('/')
  return {
    step(name, detail) {
      const step = begin({ name, kind: 'step', parentSpanId: call.spanId })
      return (error) =>
        step.end(detail === '' ? {} : { detail: truncate(detail, MOST_DETAIL) }, error !== undefined)
    },
    end(ids, code) {
      const attributes = {
        'rpc.system': framing,
        'rpc.service': rpc.slice(0, slash),
        'rpc.method': rpc.slice(slash + 1),
        'network.peer.address': peer,
        'rpc.status': code ?? 'OK',
      }
      call.end({ ...attributes, ...textsOf(ids) }, code !== undefined)
    },
  }
}

function textsOf(ids: LogFields): Record<string, string> {
  const given = Object.entries(ids).flatMap(([name, value]) =>
    typeof value === 'string' ? [[name, value]] : [],
  )
  return Object.fromEntries(given)
}

function nanoseconds(ms: number): bigint {
  return BigInt(Math.round(ms * 1e6))
}
