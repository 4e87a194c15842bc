import { AgentError } from './errors.ts'

/**
 * Waits for `promise`, or throws what `signal` was aborted with. The promise itself goes on, and may fail when nobody
 * waits for it any more.
 */
export async function raceSignal<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
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
