import { abortable } from './abort.ts'

/** Runs tasks one after the other, so that the undo of a failed change cannot undo a later change. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()
  #unfinished = 0

  /** Runs `task` after the tasks before it. Throws the reason of `signal` when that fires during the wait. */
  run<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const before = this.#last
    // Most tasks find the queue empty and skip the wait.
    const result = this.#unfinished === 0 ? begin(task, signal) : abortable(before, signal).then(task)
    const ended = () => {
      this.#unfinished -= 1
    }
    this.#unfinished += 1
    // `ended` drops the values: otherwise each result would keep the previous one in memory.
    this.#last =
      this.#unfinished === 1 ? result.then(ended, ended) : Promise.allSettled([before, result]).then(ended)
    return result
  }
}

async function begin<T>(task: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  return await task()
}
