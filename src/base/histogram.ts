/** How often values were observed, by their size. */
export interface Distribution {
  /** Upper bounds in increasing order. */
  readonly bounds: readonly number[]
  /** For each bound the values up to it and above the one before, then those above the last. */
  readonly counts: readonly number[]
  readonly sum: number
}

/** Counts values by the bounds that it is made with. */
export class Histogram {
  readonly #bounds: readonly number[]
  readonly #counts: number[]
  #sum = 0

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = new Array<number>(bounds.length + 1).fill(0)
  }

  observe(value: number): void {
    let index = 0
    for (const bound of this.#bounds) {
      if (value <= bound) break
      index += 1
    }
    this.#counts[index] = (this.#counts[index] ?? 0) + 1
    this.#sum += value
  }

  get distribution(): Distribution {
    return { bounds: this.#bounds, counts: [...this.#counts], sum: this.#sum }
  }
}
