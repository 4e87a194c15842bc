const PREFIX = 'p'

/**
 * Keys of processes: the names of what is kept for one of them outside the agent begin with its key. A key is used once
 * in the life of the sandbox, whatever becomes of the agent.
 */
export class ProcessKeys {
  #last = 0

  next(): string {
    this.#last += 1
    return `${PREFIX}${this.#last}`
  }

  /** Never returns the key at the beginning of `name`, because the previous agent used it. */
  skip(name: string): void {
    const number = Number(new RegExp(`^${PREFIX}(\\d{1,15})(?:-|$)`).exec(name)?.[1] ?? 0)
    this.#last = Math.max(this.#last, number)
  }
}
