const PREFIX = 'p'

/** A key begins the names of a process's stored descriptors. A restarted agent does not use a key again. */
export class ProcessKeys {
  #last = 0

  next(): string {
    this.#last += 1
    return `${PREFIX}${this.#last}`
  }

  /** Skips the key that `name` begins with, because the previous agent used it. */
  skip(name: string): void {
    const number = Number(new RegExp(`^${PREFIX}(\\d{1,15})(?:-|$)`).exec(name)?.[1] ?? 0)
    this.#last = Math.max(this.#last, number)
  }
}
