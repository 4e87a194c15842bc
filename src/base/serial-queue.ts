import { abortable } from './abort.ts'

/**
 * Runs tasks one after the other. A change that fails restores the state before it, which must not undo another change
 * that has succeeded in between.
 */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()

  /** Runs `task` once the tasks before it have ended. Throws the reason of `signal` when that fires during the wait. */
  run<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const before = this.#last
    const result = abortable(before, signal).then(task)
    // Without their values: each would hold the one before it for ever.
    this.#last = Promise.allSettled([before, result]).then(() => {})
    return result
  }
}
