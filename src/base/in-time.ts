import type { AgentError } from './errors.ts'
import { LONGEST_TIMER_MS } from './longest-timer.ts'

/** Waits for `work`, which goes on in any case, at most so long. Then throws what `late` makes. */
export async function inTime<T>(
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
