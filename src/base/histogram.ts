export interface Distribution {
  /** Upper bounds in increasing order. */
  readonly bounds: readonly number[]
  /** One count for each bound: values up to it and above the previous bound; then one for values above the last bound. */
  readonly counts: readonly number[]
  readonly sum: number
}

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
