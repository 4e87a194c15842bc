import { printSamples } from '../../base/exposition.ts'
import { Histogram } from '../../base/histogram.ts'
import type { SavedMachine } from '../../gen/microvm/instance/v1/instance.ts'

const SECONDS = [0.05, 0.2, 0.5, 1, 2, 5, 20, 60]

/** Figures of machines that were saved and resumed since the daemon's start. */
export class MoveFigures {
  /** By operation and outcome. */
  readonly #counts = new Map<string, number>()
  readonly #stopped = new Histogram(SECONDS)
  readonly #waiting = new Histogram(SECONDS)

  async counted<T>(operation: string, work: () => Promise<T>): Promise<T> {
    let outcome = 'failed'
    try {
      const result = await work()
      outcome = 'done'
      return result
    } finally {
      const name = `${operation} ${outcome}`
      this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1)
    }
  }

  stopped({ stoppedUs, waitingUs }: Pick<SavedMachine, 'stoppedUs' | 'waitingUs'>): void {
    this.#stopped.observe(Number(stoppedUs) / 1e6)
    this.#waiting.observe(Number(waitingUs) / 1e6)
  }

  /** In Prometheus text form. */
  print(): string {
    const counts = [...this.#counts].map(([name, value]) => {
      const [operation = '', outcome = ''] = name.split(' ')
      return { labels: { operation, outcome }, value }
    })
    return [
      printSamples(
        'microvm_saved_machines_total',
        { type: 'counter', help: 'Machines that were saved and resumed, by outcome.' },
        counts,
      ),
      printSamples(
        'microvm_guest_stopped_seconds',
        { type: 'histogram', help: 'For how long guests stood still until they were saved.' },
        [{ value: this.#stopped.distribution }],
      ),
      printSamples(
        'microvm_callers_waiting_seconds',
        { type: 'histogram', help: 'For how long callers waited until guests were saved.' },
        [{ value: this.#waiting.distribution }],
      ),
    ].join('')
  }
}
