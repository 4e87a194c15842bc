import { once } from 'node:events'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

export interface ReceivedSpan {
  /** Of the sender: `host.name`. */
  readonly host?: string
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

export interface OtlpCollector {
  readonly endpoint: string
  readonly spans: readonly ReceivedSpan[]
  readonly requests: readonly string[]
  readonly bodies: readonly string[]
  until(isWanted: (span: ReceivedSpan) => boolean): Promise<readonly ReceivedSpan[]>
  stop(): void
}

export async function startCollector(status = 200): Promise<OtlpCollector> {
  const spans: ReceivedSpan[] = []
  const [requests, bodies]: [string[], string[]] = [[], []]
  const lookers = new Set<() => void>()
  const server = createServer(async (request, response) => {
    requests.push(`${request.method} ${request.url} ${request.headers['content-type']}`)
    const body = await text(request)
    bodies.push(body)
    for (const resource of JSON.parse(body).resourceSpans) {
      const { attributes } = resource.resource
      const host = attributes.find(({ key }: { key: string }) => key === 'host.name')?.value.stringValue
      for (const scope of resource.scopeSpans)
        spans.push(...scope.spans.map((span: ReceivedSpan) => ({ ...span, ...(host && { host }) })))
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
