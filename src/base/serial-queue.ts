import { abortable } from './abort.ts'

/**
 * Runs tasks one after the other. A change that fails restores the state before it, which must not undo another change
 * that has succeeded in between.
 */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()
  #unfinished = 0

  /** Runs `task` once the tasks before it have ended. Throws the reason of `signal` when that fires during the wait. */
  run<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const before = this.#last
    // Most tasks find the queue empty, and are spared the wait.
    const result = this.#unfinished === 0 ? begin(task, signal) : abortable(before, signal).then(task)
    const ended = () => {
      this.#unfinished -= 1
    }
    this.#unfinished += 1
    // Without their values: each would hold the one before it for ever.
    this.#last =
      this.#unfinished === 1 ? result.then(ended, ended) : Promise.allSettled([before, result]).then(ended)
    return result
  }
}

async function begin<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  return await task()
}
