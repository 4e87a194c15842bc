import { AgentError } from './errors.ts'

/** The longest time of a timer (2^31 − 1 ms, 24 days); Node fires a longer one at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1

/** A signal that never fires, for work that cannot be cancelled. */
export const neverAborted: AbortSignal = new AbortController().signal

/**
 * Waits for `promise`. Throws the reason of `signal` when that fires first; the promise then goes on, and its failure is
 * ignored.
 */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    const forget = () => signal.removeEventListener('abort', onAbort)
    promise.then(resolve, reject)
    promise.then(forget, forget)
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  })
}

/** The reason of a call's signal when its deadline has passed. */
export function deadlineExceeded(): AgentError {
  return DEADLINE_EXCEEDED
}

/** The reason of a call's signal when its client is gone or has cancelled it. */
export function cancelled(): AgentError {
  return CANCELLED
}

// One of each for all calls: the stack of an error costs more than the rest of a call's end, and thousands may end at once.
const DEADLINE_EXCEEDED = new AgentError('DEADLINE_EXCEEDED', 'timeout')
const CANCELLED = new AgentError('CANCELLED', 'the client cancelled the call')

/** The reason of a wait that nothing needs any more. Node would make an error with a stack for each. */
const OVER = new AgentError('CANCELLED', 'the wait is over')

/** Waits for `work` at most `ms`, then throws the error of `late`. The work itself goes on. */
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
    done.abort(OVER)
  }
}
