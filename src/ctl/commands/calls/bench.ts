import type { Context } from '../../command.ts'
import { callMethod } from '../../methods/call-method.ts'
import { encodeWords } from '../../methods/request-words.ts'
import { describedMethod } from '../../methods/schema.ts'
import { printAs } from '../../output/print.ts'

const DEFAULT_CALLS = 1000
const MOST_CALLS = 10_000_000
/** The agent works on 64 calls at a time. */
const MOST_PARALLEL = 64

export async function run(context: Context): Promise<undefined> {
  const { io, signal, timeoutMs, values } = context
  const method = describedMethod(values.argument('METHOD') || 'grpc.Health/Check')
  const payload = await encodeWords(method.input, values.rest('REQUEST'), io.stdin)
  const calls = values.number('calls', 1, MOST_CALLS) ?? DEFAULT_CALLS
  const parallel = values.number('parallel', 1, MOST_PARALLEL) ?? 1
  const session = await context.session()
  const times = new Float64Array(calls)
  let next = 0
  const work = async () => {
    for (let index = next++; index < calls; index = next++) {
      const began = performance.now()
      await callMethod(session, method, payload, { signal, timeoutMs })
      times[index] = performance.now() - began
    }
  }
  const began = performance.now()
  await Promise.all(Array.from({ length: Math.min(parallel, calls) }, work))
  const figures = figuresOf(times, performance.now() - began)
  const value = { method: method.name, calls, parallel, ...figures }
  await printAs(context, { text: textOf(method.name, calls, figures), value })
}

interface Figures {
  readonly p50Ms: number
  readonly p99Ms: number
  readonly maxMs: number
  readonly callsPerSecond: number
}

function figuresOf(times: Float64Array, wholeMs: number): Figures {
  const sorted = times.toSorted()
  const at = (share: number) => round(sorted[Math.ceil(sorted.length * share) - 1] ?? 0)
  return {
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    maxMs: at(1),
    callsPerSecond: Math.round((sorted.length * 1000) / wholeMs),
  }
}

function round(ms: number): number {
  return Math.round(ms * 1000) / 1000
}

function textOf(name: string, calls: number, { callsPerSecond, maxMs, p50Ms, p99Ms }: Figures): string {
  return `${name}: ${calls} calls, p50 ${p50Ms} ms, p99 ${p99Ms} ms, max ${maxMs} ms, ${callsPerSecond} a second\n`
}
