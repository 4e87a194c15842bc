import type { Operation } from '../../gen/microvm/instance/v1/instance.ts'
import { presentTraceparent } from '../../rpc/trace-scope.ts'
import { newSpanId, newTraceId, parseTraceparent, traceparentOf } from '../../rpc/traceparent.ts'
import type { FinishedSpan } from '../../rpc/tracing/finished-span.ts'

/** The spans of an operation: one below its caller's, and one below that for each step. */
export class OperationTrace {
  readonly #traceId: string
  readonly #parentSpanId: string | undefined
  readonly #spanId = newSpanId()
  /** By the index of their step. */
  readonly #stepIds = new Map<number, string>()

  private constructor(traceId: string, parentSpanId: string | undefined) {
    this.#traceId = traceId
    this.#parentSpanId = parentSpanId
  }

  /** In the present trace, or a new one; undefined where the caller wants none. */
  static begin(): OperationTrace | undefined {
    const {
      isSampled = true,
      spanId,
      traceId = newTraceId(),
    } = parseTraceparent(presentTraceparent() ?? '') ?? {}
    return isSampled ? new OperationTrace(traceId, spanId) : undefined
  }

  /** Of calls that are made in the step. */
  traceparent(step: number): string {
    const spanId = step < 0 ? this.#spanId : this.#stepId(step)
    return traceparentOf({ traceId: this.#traceId, spanId })
  }

  spans(operation: Operation, attributes: FinishedSpan['attributes']): readonly FinishedSpan[] {
    const { durationUs, failure, kind, startedMs, steps, stoppedUs, waitingUs } = operation
    const traceId = this.#traceId
    const timesOf = (startUs: bigint, lastsUs: bigint) => {
      const startNs = startedMs * 1_000_000n + startUs * 1000n
      return { startNs, endNs: startNs + lastsUs * 1000n }
    }
    const last = steps.findLastIndex(({ guest }) => !guest)
    const below = steps.map((step, index): FinishedSpan => {
      const own = steps.slice(0, index).findLastIndex(({ guest }) => !guest)
      const isOfGuest = step.guest && own >= 0
      return {
        ...{ name: step.name, kind: 'step', traceId, spanId: this.#stepId(index) },
        parentSpanId: isOfGuest ? this.#stepId(own) : this.#spanId,
        ...timesOf(step.startUs, step.durationUs),
        attributes: step.guest ? { state: step.state } : {},
        isFailed: step.guest ? step.state === 'failed' : failure !== '' && index === last,
      }
    })
    const times = { stopped_us: `${stoppedUs}`, waiting_us: `${waitingUs}` }
    return [
      {
        ...{ name: kind, kind: 'call', traceId, spanId: this.#spanId, parentSpanId: this.#parentSpanId },
        ...timesOf(0n, durationUs),
        attributes: { ...attributes, ...times, ...(failure !== '' && { failure }) },
        isFailed: failure !== '',
      },
      ...below,
    ]
  }

  #stepId(index: number): string {
    const id = this.#stepIds.get(index) ?? newSpanId()
    this.#stepIds.set(index, id)
    return id
  }
}
