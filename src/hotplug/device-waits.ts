import { type Distribution, Histogram } from '../base/histogram.ts'

/** Most devices are there before they are asked for, or a moment later. */
const BOUNDS = [0.001, 0.01, 0.05, 0.25, 1, 3, 10, 60]

/** Seconds that waits for devices have taken. */
export class DeviceWaits {
  readonly #found = new Histogram(BOUNDS)
  readonly #failed = new Histogram(BOUNDS)

  /** A wait is over. */
  add(ms: number, found: boolean): void {
    const histogram = found ? this.#found : this.#failed
    histogram.observe(ms / 1000)
  }

  get distributions(): { readonly found: Distribution; readonly failed: Distribution } {
    return { found: this.#found.distribution, failed: this.#failed.distribution }
  }
}
