import { abortable } from '../../../src/base/abort.ts'
import type { Clock } from '../../../src/os/clock.ts'

export class FakeClock implements Clock {
  #nowNs = 1_000_000_000n
  readonly #sleepers = new Set<{ readonly dueNs: bigint; readonly wake: () => void }>()

  boottimeNs(): bigint {
    return this.#nowNs
  }

  monotonicMs(): number {
    return Number(this.#nowNs / 1_000_000n)
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const slept = Promise.withResolvers<void>()
    const stop = this.startTimer(ms, slept.resolve)
    try {
      await (signal === undefined ? slept.promise : abortable(slept.promise, signal))
    } finally {
      stop()
    }
  }

  startTimer(ms: number, expired: () => void): () => void {
    const sleeper = { dueNs: this.#nowNs + nanoseconds(ms), wake: expired }
    this.#sleepers.add(sleeper)
    return () => this.#sleepers.delete(sleeper)
  }

  get sleeping(): number {
    return this.#sleepers.size
  }

  /** The process that has started the timers is dead. */
  stopAll(): void {
    this.#sleepers.clear()
  }

  advance(ms: number): void {
    this.#nowNs += nanoseconds(ms)
    for (const sleeper of this.#sleepers) {
      if (sleeper.dueNs > this.#nowNs) continue
      this.#sleepers.delete(sleeper)
      sleeper.wake()
    }
  }
}

function nanoseconds(ms: number): bigint {
  return BigInt(Math.round(ms * 1e6))
}
