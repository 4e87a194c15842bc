import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

/** A call, or a step of the call `parent`; times in microseconds since 1970. */
export interface Span {
  readonly id: string
  readonly parent: string | undefined
  readonly name: string
  readonly detail: string
  readonly fromUs: number
  readonly toUs: number
}

export async function collectSpans(): Promise<{
  readonly endpoint: string
  take(): readonly Span[]
  close(): void
}> {
  const spans: Span[] = []
  const server = createServer(async (request, response) => {
    spans.push(...spansOf(JSON.parse(await text(request))))
    response.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (typeof address !== 'object' || address === null) throw new Error('the collector has no port')
  return {
    endpoint: `http://127.0.0.1:${address.port}`,
    take: () => spans.splice(0),
    close: () => void server.close(),
  }
}

interface OtlpSpan {
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly { readonly key: string; readonly value: { readonly stringValue: string } }[]
}

function spansOf(body: {
  readonly resourceSpans: readonly {
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[]
  }[]
}): readonly Span[] {
  const spans = body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans))
  return spans.map((span) => ({
    id: span.spanId,
    parent: span.parentSpanId,
    name: span.name,
    detail: span.attributes.find(({ key }) => key === 'detail')?.value.stringValue ?? '',
    fromUs: Number(BigInt(span.startTimeUnixNano) / 1000n),
    toUs: Number(BigInt(span.endTimeUnixNano) / 1000n),
  }))
}
