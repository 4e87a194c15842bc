import { messageOf } from '../../base/errors.ts'
import { printSamples } from '../../base/exposition.ts'
import { Histogram } from '../../base/histogram.ts'
import type { Operation } from '../../gen/microvm/instance/v1/instance.ts'
import type { MachineInstance } from '../instance/instance.ts'
import { type Timeline, withOperation } from '../instance/record/timeline.ts'

const SECONDS = [0.05, 0.2, 0.5, 1, 2, 5, 20, 60]

/** Figures of machines that were saved, resumed and cloned since the daemon's start. */
export class MoveFigures {
  /** By operation and outcome. */
  readonly #counts = new Map<string, number>()
  /** By operation. */
  readonly #stopped = new Map<string, Histogram>()
  readonly #waiting = new Map<string, Histogram>()

  /** Runs an operation and counts it. The record of an instance that is there afterwards has its timeline. */
  async counted<T>(instance: MachineInstance, timeline: Timeline, work: () => Promise<T>): Promise<T> {
    instance.recorded.timeline = timeline
    try {
      const result = await work()
      await this.#ended(instance, timeline.operation())
      return result
    } catch (error) {
      await this.#ended(instance, timeline.operation(messageOf(error)))
      throw error
    } finally {
      instance.recorded.timeline = undefined
    }
  }

  async #ended({ isForgotten, recorded }: MachineInstance, operation: Operation): Promise<void> {
    const { failure, kind, stoppedUs, waitingUs } = operation
    const name = `${kind} ${failure === '' ? 'done' : 'failed'}`
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1)
    if (failure === '') {
      observe(this.#stopped, kind, stoppedUs)
      observe(this.#waiting, kind, waitingUs)
    }
    if (isForgotten) return
    const operations = withOperation(recorded.record.operations, operation)
    await recorded.note({ set: { operations }, kind: 'state', text: `${kind} has ended` })
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
        { type: 'counter', help: 'Machines that were saved, resumed and cloned, by outcome.' },
        counts,
      ),
      printSamples(
        'microvm_guest_stopped_seconds',
        { type: 'histogram', help: 'For how long guests stood still: until they were saved, or ran.' },
        samplesOf(this.#stopped),
      ),
      printSamples(
        'microvm_callers_waiting_seconds',
        { type: 'histogram', help: 'For how long callers waited: until guests were saved, or answered.' },
        samplesOf(this.#waiting),
      ),
    ].join('')
  }
}

function observe(histograms: Map<string, Histogram>, kind: string, us: bigint): void {
  const histogram = histograms.get(kind) ?? new Histogram(SECONDS)
  histograms.set(kind, histogram)
  histogram.observe(Number(us) / 1e6)
}

function samplesOf(histograms: ReadonlyMap<string, Histogram>) {
  return [...histograms].map(([operation, { distribution }]) => ({
    labels: { operation },
    value: distribution,
  }))
}
