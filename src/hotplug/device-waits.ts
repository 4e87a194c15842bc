import { type Distribution, Histogram } from '../base/histogram.ts'

/** In seconds. Most devices are present at the call, or a moment later. */
const BOUNDS = [0.001, 0.01, 0.05, 0.25, 1, 3, 10, 60]

export class DeviceWaits {
  readonly #found = new Histogram(BOUNDS)
  readonly #failed = new Histogram(BOUNDS)

  add(ms: number, found: boolean): void {
    const histogram = found ? this.#found : this.#failed
    histogram.observe(ms / 1000)
  }

  get distributions(): { readonly found: Distribution; readonly failed: Distribution } {
    return { found: this.#found.distribution, failed: this.#failed.distribution }
  }
}
