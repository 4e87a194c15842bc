import { once } from 'node:events'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

/** A span as OTLP's JSON has it. */
export interface ReceivedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly {
    readonly key: string
    readonly value: { readonly stringValue: string }
  }[]
  readonly status: { readonly code: number }
}

/** A collector of traces. */
export interface OtlpCollector {
  readonly endpoint: string
  /** The spans so far. */
  readonly spans: readonly ReceivedSpan[]
  /** The paths and types of the requests so far. */
  readonly requests: readonly string[]
  /** The bodies of the requests so far. */
  readonly bodies: readonly string[]
  /** Resolves with all spans once there is one that is looked for. */
  until(isWanted: (span: ReceivedSpan) => boolean): Promise<readonly ReceivedSpan[]>
  stop(): void
}

/** Starts a collector, which answers every request with this status. */
export async function startCollector(status = 200): Promise<OtlpCollector> {
  const spans: ReceivedSpan[] = []
  const [requests, bodies]: [string[], string[]] = [[], []]
  const lookers = new Set<() => void>()
  const server = createServer(async (request, response) => {
    requests.push(`${request.method} ${request.url} ${request.headers['content-type']}`)
    const body = await text(request)
    bodies.push(body)
    for (const resource of JSON.parse(body).resourceSpans) {
      for (const scope of resource.scopeSpans) spans.push(...scope.spans)
    }
    response.writeHead(status).end('{}')
    for (const look of lookers) look()
  })
  const endpoint = await listening(server)
  return {
    endpoint,
    spans,
    requests,
    bodies,
    until: (isWanted) =>
      new Promise((resolve) => {
        const look = () => {
          if (!spans.some(isWanted)) return
          lookers.delete(look)
          resolve(spans)
        }
        lookers.add(look)
        look()
      }),
    stop: () => void server.close(),
  }
}

/** Starts a collector that takes requests and never answers. Resolves `asked` when it has one. */
export async function startHangingCollector() {
  const asked = Promise.withResolvers<void>()
  const server = createServer(() => asked.resolve())
  const endpoint = await listening(server)
  const stop = () => {
    server.closeAllConnections()
    server.close()
  }
  return { endpoint, asked: asked.promise, stop }
}

async function listening(server: ReturnType<typeof createServer>): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the collector has no port')
  return `http://127.0.0.1:${address.port}`
}
