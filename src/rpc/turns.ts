/** Runs a task of one connection now or in a later iteration of the event loop. */
export type InTurn = (task: () => void) => void

/** Shares the event loop among connections: an iteration runs few tasks, one connection after the other. */
export class Turns {
  readonly #tasksAtOnce: number
  /** A queue for each connection; the first queue is next. */
  readonly #waiting = new Set<(() => void)[]>()
  #left: number
  #isTurning = false

  constructor(tasksAtOnce: number) {
    this.#tasksAtOnce = tasksAtOnce
    this.#left = tasksAtOnce
  }

  connection(): InTurn {
    const queue: (() => void)[] = []
    return (task) => {
      this.#beginTurn()
      if (this.#left > 0 && this.#waiting.size === 0) {
        this.#left -= 1
        task()
      } else {
        queue.push(task)
        this.#waiting.add(queue)
      }
    }
  }

  /** Schedules the next iteration, which runs the waiting tasks. */
  #beginTurn(): void {
    if (this.#isTurning) return
    this.#isTurning = true
    setImmediate(() => {
      this.#isTurning = false
      this.#left = this.#tasksAtOnce
      if (this.#waiting.size > 0) this.#runWaiting()
    })
  }

  #runWaiting(): void {
    this.#beginTurn()
    while (this.#left > 0) {
      const [queue] = this.#waiting
      const task = queue?.shift()
      if (queue === undefined || task === undefined) return
      this.#waiting.delete(queue)
      if (queue.length > 0) this.#waiting.add(queue)
      this.#left -= 1
      task()
    }
  }
}
