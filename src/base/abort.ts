import { AgentError } from './errors.ts'

/** The longest time a timer can hold (2^31 − 1 ms, 24 days); Node fires a longer one at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1

/** A signal that never fires, for work that nobody cancels. */
export const neverAborted: AbortSignal = new AbortController().signal

/**
 * Waits for `promise`, or throws what `signal` was aborted with. The promise itself goes on, and may fail when nobody
 * waits for it any more.
 */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  // Nobody would handle its failure when the signal has fired already, and that ends the whole process.
  promise.catch(() => {})
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

/** What a call's signal is aborted with when its time is over. */
export function deadlineExceeded(): AgentError {
  return new AgentError('DEADLINE_EXCEEDED', 'timeout')
}

/** What a call's signal is aborted with when its client is gone or took it back. */
export function cancelled(): AgentError {
  return new AgentError('CANCELLED', 'the client cancelled the call')
}

/** Waits for `work`, which goes on in any case, at most so long. Then throws what `late` makes. */
export async function withTimeout<T>(
  clock: { readonly sleep: (ms: number, signal: AbortSignal) => Promise<void> },
  ms: number,
  work: Promise<T>,
  late: () => AgentError,
): Promise<T> {
  const done = new AbortController()
  const elapsed = clock.sleep(Math.min(ms, LONGEST_TIMER_MS), done.signal).then(() => {
    throw late()
  })
  try {
    return await Promise.race([work, elapsed])
  } finally {
    done.abort()
  }
}
