import { AsyncLocalStorage } from 'node:async_hooks'
import { parseTraceparent, TRACEPARENT } from './traceparent.ts'

type Traceparent = () => string | undefined

const current = new AsyncLocalStorage<Traceparent>()

/** The trace context (W3C) of the work that is being done. */
export function presentTraceparent(): string | undefined {
  return current.getStore()?.()
}

/** Runs `work`. Until it has ended, the calls that are made in it carry the trace context that `traceparent` returns then. */
export async function inTrace<Result>(
  traceparent: Traceparent,
  work: () => Promise<Result>,
): Promise<Result> {
  let isOver = false
  try {
    return await current.run(() => (isOver ? undefined : traceparent()), work)
  } finally {
    // What was begun in it may go on for long.
    isOver = true
  }
}

/** Runs `work` in the trace context of its caller, unless that has sent none, or an invalid one. */
export async function inCallersTrace<Result>(
  { traceparent = '' }: { readonly traceparent?: string | undefined },
  work: () => Promise<Result>,
): Promise<Result> {
  return parseTraceparent(traceparent) === undefined ? work() : inTrace(() => traceparent, work)
}

/** The metadata of a call, with the trace context in which it is made unless it has another. */
export function withTrace<Metadata extends Readonly<Record<string, string>> | undefined>(
  metadata: Metadata,
): Metadata | Readonly<Record<string, string>> {
  const traceparent = presentTraceparent()
  return traceparent === undefined ? metadata : { [TRACEPARENT]: traceparent, ...metadata }
}
