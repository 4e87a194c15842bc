import { AgentError } from './errors.ts'

/** The longest timer of Node, 24 days; a longer one fires at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1

export const neverAborted: AbortSignal = new AbortController().signal

/** An AbortController that makes its signal at the first use: a signal costs more than the rest of a short call. */
export class LateAbort {
  #controller: AbortController | undefined
  #reason: Error | undefined

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#reason !== undefined) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }

  get aborted(): boolean {
    return this.#reason !== undefined
  }

  /** Only the first call has an effect. */
  abort(reason: Error = OVER): void {
    this.#reason ??= reason
    this.#controller?.abort(this.#reason)
  }

  throwIfAborted(): void {
    if (this.#reason !== undefined) throw this.#reason
  }
}

/** Waits for `promise`; throws the reason of `signal` if that fires first. Later failures of `promise` are ignored. */
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

export function deadlineExceeded(): AgentError {
  return DEADLINE_EXCEEDED
}

export function cancelled(): AgentError {
  return CANCELLED
}

// Shared by all calls: the stack of an error costs more than the rest of a call's end, and thousands may end at once.
const DEADLINE_EXCEEDED = new AgentError('DEADLINE_EXCEEDED', 'timeout')
const CANCELLED = new AgentError('CANCELLED', 'the client cancelled the call')

/** For waits that end without a fault: Node would make an error with a stack for each. */
const OVER = new AgentError('CANCELLED', 'the wait is over')

/** Waits for `work` at most `ms`, then throws the error of `late`. The work itself goes on. */
export async function withTimeout<T>(
  clock: { readonly startTimer: (ms: number, expired: () => void) => () => void },
  ms: number,
  work: Promise<T>,
  late: () => AgentError,
): Promise<T> {
  const elapsed = Promise.withResolvers<never>()
  const stop = clock.startTimer(Math.min(ms, LONGEST_TIMER_MS), () => elapsed.reject(late()))
  try {
    return await Promise.race([work, elapsed.promise])
  } finally {
    stop()
  }
}
