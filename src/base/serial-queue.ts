import { abortable } from './abort.ts'

/**
 * One piece of work after the other: a change that fails puts back what it found, which must not undo what another one
 * answered meanwhile.
 */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()

  /** Does the work once those before it are done. Throws what `signal` is aborted with, while it waits for that. */
  run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const before = this.#last
    const turn = abortable(before, signal).then(work)
    this.#last = Promise.allSettled([before, turn])
    return turn
  }
}
