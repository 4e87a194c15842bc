import { type FinishedSpan, resourceOf, SAMPLED, type Service } from './finished-span.ts'
import { Refused, type SpanSink } from './span-queue.ts'

/** The path of traces where the endpoint has none. */
const PATH = '/v1/traces'

/** Sends spans by OTLP over HTTP, as JSON. */
export function otlpSink(endpoint: string, service: Service): SpanSink {
  const url = new URL(endpoint)
  if (url.pathname === '/') url.pathname = PATH
  const resource = { attributes: attributesOf(resourceOf(service)), droppedAttributesCount: 0 }
  const scope = { name: service.name }
  return {
    name: url.href,
    send: async (spans, signal) => {
      const scopeSpans = [{ scope, spans: spans.map(otlpSpanOf) }]
      const body = Buffer.from(JSON.stringify({ resourceSpans: [{ resource, scopeSpans }] }))
      const status = await post(url, body, signal)
      if (status < 200 || status > 299) throw new Refused(`HTTP status ${status}`)
    },
    close: () => {},
  }
}

const KINDS = { step: 1, call: 2 }
const CODES = { unset: 0, error: 2 }
/** Bit 8 makes bit 9 valid, which tells whether the parent is remote. */
const FLAGS = 0x100 | SAMPLED

/** The JSON of a span in opentelemetry/proto/trace/v1/trace.proto. */
function otlpSpanOf(span: FinishedSpan) {
  const { traceId, spanId, parentSpanId, name } = span
  return {
    traceId,
    spanId,
    parentSpanId,
    name,
    kind: KINDS[span.kind],
    startTimeUnixNano: String(span.startNs),
    endTimeUnixNano: String(span.endNs),
    attributes: attributesOf(span.attributes),
    droppedAttributesCount: 0,
    events: [],
    droppedEventsCount: 0,
    status: { code: span.isFailed ? CODES.error : CODES.unset },
    links: [],
    droppedLinksCount: 0,
    flags: FLAGS,
  }
}

function attributesOf(attributes: Readonly<Record<string, string>>) {
  return Object.entries(attributes).map(([key, stringValue]) => ({ key, value: { stringValue } }))
}

/** Uses a new connection. Resolves with the status; the rest of the answer is not read. */
async function post(url: URL, body: Uint8Array, signal: AbortSignal): Promise<number> {
  // Loaded here, because it takes 3 ms and 2 MB, and Kata's forwarder does not need it.
  const { request } = await import('node:http')
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const sent = request(url, { method: 'POST', headers, agent: false, signal }, (response) => {
    // `destroy` before the end of the answer emits an error; the status is already known.
    response.on('error', () => {})
    resolve(response.statusCode ?? 0)
    response.destroy()
  })
  sent.on('error', reject)
  sent.end(body)
  return promise
}
