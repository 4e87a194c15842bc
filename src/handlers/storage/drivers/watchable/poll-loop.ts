import type { Clock } from '../../../../os/clock.ts'

const PERIOD_MS = 2000
/** Between a round that took long and the next one. */
const SHORTEST_REST_MS = 1000

/** Never rejects. Tells whether it wants to be called again. */
type Work = () => Promise<'again' | 'done'>

/**
 * Does the work of its members every two seconds (spec E.3.5), one after the other, so that a slow file system of the
 * host has only one thread waiting for it. Without members nothing goes on.
 */
export class PollLoop {
  readonly #clock: Clock
  readonly #members = new Set<Work>()
  /** What is being done. */
  readonly #running = new Map<Work, Promise<unknown>>()
  /** Ends the wait for the next round. */
  #stop: AbortController | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The first call of `work` is in the next round. Returns how to leave: when that resolves, it is not being called. */
  join(work: Work): () => Promise<void> {
    this.#members.add(work)
    if (this.#stop === undefined) {
      this.#stop = new AbortController()
      void this.#run(this.#stop.signal)
    }
    return () => this.#leave(work)
  }

  async #leave(work: Work): Promise<void> {
    this.#remove(work)
    await this.#running.get(work)
  }

  #remove(work: Work): void {
    this.#members.delete(work)
    if (this.#members.size > 0) return
    this.#stop?.abort()
    this.#stop = undefined
  }

  /** Never rejects. */
  async #run(stopped: AbortSignal): Promise<void> {
    for (let restMs = PERIOD_MS; ; ) {
      // Rejected when it is stopped.
      await this.#clock.sleep(restMs, stopped).catch(() => {})
      const beginMs = this.#clock.monotonicMs()
      for (const work of [...this.#members]) {
        if (stopped.aborted) return
        if (!this.#members.has(work)) continue
        const ended = work()
        this.#running.set(work, ended)
        if ((await ended) === 'done') this.#remove(work)
        this.#running.delete(work)
      }
      if (stopped.aborted) return
      restMs = Math.max(SHORTEST_REST_MS, beginMs + PERIOD_MS - this.#clock.monotonicMs())
    }
  }
}
