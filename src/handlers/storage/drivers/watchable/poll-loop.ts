import type { Clock } from '../../../../os/clock.ts'

const PERIOD_MS = 2000
/** The shortest pause after a long round. */
const MIN_REST_MS = 1000

/** Returns whether the next round calls it again. Never rejects. */
type Task = () => Promise<'again' | 'done'>

/** Calls its tasks every two seconds, one after the other: at most one thread waits for a slow host file system. */
export class PollLoop {
  readonly #clock: Clock
  readonly #tasks = new Set<Task>()
  readonly #running = new Map<Task, Promise<unknown>>()
  /** Ends the wait for the next round; undefined while the loop is stopped. */
  #stop: AbortController | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Adds a task. The returned function removes it and resolves when no call of it is in progress. */
  add(task: Task): () => Promise<void> {
    this.#tasks.add(task)
    if (this.#stop === undefined) {
      this.#stop = new AbortController()
      void this.#run(this.#stop.signal)
    }
    return () => this.#removeAndWait(task)
  }

  async #removeAndWait(task: Task): Promise<void> {
    this.#remove(task)
    await this.#running.get(task)
  }

  #remove(task: Task): void {
    this.#tasks.delete(task)
    if (this.#tasks.size > 0) return
    this.#stop?.abort()
    this.#stop = undefined
  }

  /** Never rejects. */
  async #run(stopped: AbortSignal): Promise<void> {
    for (let restMs = PERIOD_MS; ; ) {
      // The sleep rejects when the loop is stopped.
      await this.#clock.sleep(restMs, stopped).catch(() => {})
      const beginMs = this.#clock.monotonicMs()
      for (const task of [...this.#tasks]) {
        if (stopped.aborted) return
        if (!this.#tasks.has(task)) continue
        const ended = task()
        this.#running.set(task, ended)
        if ((await ended) === 'done') this.#remove(task)
        this.#running.delete(task)
      }
      if (stopped.aborted) return
      restMs = Math.max(MIN_REST_MS, beginMs + PERIOD_MS - this.#clock.monotonicMs())
    }
  }
}
