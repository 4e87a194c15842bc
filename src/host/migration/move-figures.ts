import { messageOf } from '../../base/errors.ts'
import { printSamples } from '../../base/exposition.ts'
import { Histogram } from '../../base/histogram.ts'
import type { Operation } from '../../gen/microvm/instance/v1/instance.ts'
import { inTrace } from '../../rpc/trace-scope.ts'
import type { FinishedSpan } from '../../rpc/tracing/finished-span.ts'
import type { SpanQueue } from '../../rpc/tracing/span-queue.ts'
import type { MachineInstance } from '../instance/instance.ts'
import { Timeline, withOperation } from '../instance/record/timeline.ts'
import { OperationTrace } from './operation-trace.ts'

const SECONDS = [0.05, 0.2, 0.5, 1, 2, 5, 20, 60]

/** Where the spans of operations go. */
export type Spans = Pick<SpanQueue, 'add' | 'dropped'>

/** Figures of machines that were saved, resumed and cloned since the daemon's start. */
export class MoveFigures {
  /** By operation, outcome, and the step that has failed. */
  readonly #counts = new Map<string, number>()
  /** By operation. */
  readonly #stopped = new Map<string, Histogram>()
  readonly #waiting = new Map<string, Histogram>()
  readonly #spans: Spans | undefined

  constructor(spans?: Spans) {
    this.#spans = spans
  }

  /** Runs an operation, counts and traces it. The record of an instance that is there afterwards has its timeline. */
  async counted<T>(instance: MachineInstance, timeline: Timeline, work: () => Promise<T>): Promise<T> {
    instance.recorded.timeline = timeline
    const trace = this.#spans && OperationTrace.begin()
    try {
      const result = await (trace ? inTrace(() => trace.traceparent(timeline.present), work) : work())
      await this.#ended(instance, timeline.operation(), trace)
      return result
    } catch (error) {
      await this.#ended(instance, timeline.operation(messageOf(error)), trace)
      throw error
    } finally {
      instance.recorded.timeline = undefined
    }
  }

  /** Marks the begin or the end of a drain, whose moves are operations of their own. */
  async drain(work: () => Promise<void>): Promise<void> {
    const trace = this.#spans && OperationTrace.begin()
    const timeline = new Timeline('drain')
    let failure = ''
    try {
      await work()
    } catch (error) {
      failure = messageOf(error)
      throw error
    } finally {
      this.#add(trace?.spans(timeline.operation(failure), {}))
    }
  }

  #add(spans: readonly FinishedSpan[] = []): void {
    for (const span of spans) this.#spans?.add(span)
  }

  async #ended(
    { isForgotten, key, recorded }: MachineInstance,
    operation: Operation,
    trace: OperationTrace | undefined,
  ): Promise<void> {
    const { failure, kind, steps, stoppedUs, waitingUs } = operation
    const tenant = recorded.record.properties?.tenant ?? ''
    this.#add(trace?.spans(operation, { instance: key, ...(tenant !== '' && { tenant }) }))
    const step = steps.findLast(({ guest }) => !guest)?.name ?? ''
    const name = failure === '' ? `${kind} done` : `${kind} failed ${step}`
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
      const [operation = '', outcome = '', step] = name.split(' ')
      return { labels: { operation, outcome, ...(step && { step }) }, value }
    })
    return [
      printSamples(
        'microvm_saved_machines_total',
        {
          type: 'counter',
          help: 'Machines that were saved, resumed and cloned, by outcome and failed step.',
        },
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
      printSamples(
        'microvm_daemon_trace_spans_dropped_total',
        { type: 'counter', help: 'Spans of operations that were not sent.' },
        this.#spans === undefined ? [] : [{ value: this.#spans.dropped }],
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
