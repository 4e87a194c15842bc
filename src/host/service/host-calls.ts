import { Changes } from '../../base/changes.ts'
import type { StatusCodeName } from '../../base/errors.ts'
import { printSamples } from '../../base/exposition.ts'
import { Histogram } from '../../base/histogram.ts'
import type { HostCall } from '../../gen/microvm/instance/v1/instance.ts'

export interface OpenCall {
  readonly id: bigint
  readonly method: string
  readonly tenant: string
  readonly startedMs: number
  key: string
  step: string
  /** Counts the call with its code. A call is listed until its work has ended. */
  answered(code: StatusCodeName): void
  ended(): void
}

/** Few bounds, because every called method has a series for each of them. */
const SECONDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60]

/** The calls that have not ended, and figures of those that have. */
export class HostCalls {
  readonly #nowMs: () => number
  readonly #open = new Set<OpenCall>()
  readonly #openOf = new Map<string, number>()
  readonly #seconds = new Map<string, Histogram>()
  /** By method, then by code. */
  readonly #counts = new Map<string, Map<StatusCodeName, number>>()
  #last = 0n
  readonly #ends = new Changes()

  /** `nowMs` is of a monotonic clock. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  /** How many calls of a tenant have not ended. */
  openOf(tenant: string): number {
    return this.#openOf.get(tenant) ?? 0
  }

  begin(method: string, tenant: string): OpenCall {
    this.#last += 1n
    const call: OpenCall = {
      id: this.#last,
      method,
      tenant,
      startedMs: this.#nowMs(),
      key: '',
      step: '',
      answered: (code) => this.#count(call, code),
      ended: () => {
        if (this.#open.delete(call)) this.#openOf.set(tenant, this.openOf(tenant) - 1)
        this.#ends.announce()
      },
    }
    this.#open.add(call)
    this.#openOf.set(tenant, this.openOf(tenant) + 1)
    return call
  }

  /** Resolves once none of the methods is being called, or with the signal. */
  async untilEnded(methods: readonly string[], signal: AbortSignal): Promise<void> {
    const isOpen = () => [...this.#open].some(({ method }) => methods.includes(method))
    while (isOpen() && !signal.aborted) await this.#ends.next(signal).catch(() => {})
  }

  /** Oldest first. Without a tenant, of all. */
  list(tenant: string | undefined): HostCall[] {
    const seen = [...this.#open].filter((call) => tenant === undefined || call.tenant === tenant)
    return seen.map(({ id, method, key, tenant: of, step, startedMs }) => ({
      id,
      method,
      key,
      tenant: of,
      step,
      ageMs: BigInt(Math.max(0, Math.round(this.#nowMs() - startedMs))),
    }))
  }

  /** In Prometheus' text form. */
  metrics(): string {
    const open = new Map<string, number>()
    for (const { method } of this.#open) open.set(method, (open.get(method) ?? 0) + 1)
    const counts = [...this.#counts].flatMap(([method, codes]) =>
      [...codes].map(([code, value]) => ({ labels: { method, code }, value })),
    )
    const seconds = [...this.#seconds].map(([method, { distribution }]) => ({
      labels: { method },
      value: distribution,
    }))
    return [
      printSamples('microvm_daemon_calls_total', { type: 'counter', help: 'Answered calls.' }, counts),
      printSamples(
        'microvm_daemon_call_seconds',
        { type: 'histogram', help: 'Time from the arrival of a call to its answer.' },
        seconds,
      ),
      printSamples(
        'microvm_daemon_calls_in_flight',
        { type: 'gauge', help: 'Calls that have not ended.' },
        [...open].map(([method, value]) => ({ labels: { method }, value })),
      ),
    ].join('')
  }

  #count({ method, startedMs }: OpenCall, code: StatusCodeName): void {
    const codes = this.#counts.get(method) ?? new Map<StatusCodeName, number>()
    this.#counts.set(method, codes.set(code, (codes.get(code) ?? 0) + 1))
    const seconds = this.#seconds.get(method) ?? new Histogram(SECONDS)
    this.#seconds.set(method, seconds)
    seconds.observe((this.#nowMs() - startedMs) / 1000)
  }
}
