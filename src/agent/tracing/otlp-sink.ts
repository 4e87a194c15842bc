import { request } from 'node:http'
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer'
import { Refused, type SpanSink } from './span-queue.ts'

/** The path of traces where the endpoint has none. */
const PATH = '/v1/traces'

/** Sends spans by OTLP over HTTP, as JSON. */
export function otlpSink(endpoint: string): SpanSink {
  const url = new URL(endpoint)
  if (url.pathname === '/') url.pathname = PATH
  return {
    name: url.href,
    send: async (spans, signal) => {
      const body = JsonTraceSerializer.serializeRequest([...spans])
      if (body === undefined) throw new Refused('the spans could not be encoded')
      const status = await post(url, body, signal)
      if (status < 200 || status > 299) throw new Refused(`HTTP status ${status}`)
    },
    close: () => {},
  }
}

/** Posts one request on a connection of its own. Resolves with the status; the rest of the answer is not read. */
function post(url: URL, body: Uint8Array, signal: AbortSignal): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const sent = request(url, { method: 'POST', headers, agent: false, signal }, (response) => {
    // The answer fails when it is destroyed before its end; its status is known.
    response.on('error', () => {})
    resolve(response.statusCode ?? 0)
    response.destroy()
  })
  sent.on('error', reject)
  sent.end(body)
  return promise
}
