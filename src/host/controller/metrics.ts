import type { StatusCodeName } from '../../base/errors.ts'
import { printSamples } from '../../base/exposition.ts'
import { Histogram } from '../../base/histogram.ts'

/** Bounds of etcd's answers, in seconds. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5]

/** What a controller counts since its start. */
export class ControllerMetrics {
  /** By method and code. */
  readonly #calls = new Map<string, number>()
  readonly #etcdFailures = new Map<StatusCodeName, number>()
  readonly #etcd = new Histogram(SECONDS)

  countCall(method: string, code: StatusCodeName): void {
    const key = `${method} ${code}`
    this.#calls.set(key, (this.#calls.get(key) ?? 0) + 1)
  }

  countEtcd(seconds: number, code: StatusCodeName): void {
    if (code === 'OK') this.#etcd.observe(seconds)
    else this.#etcdFailures.set(code, (this.#etcdFailures.get(code) ?? 0) + 1)
  }

  /** In the text form of Prometheus. `streams` are the open calls of RunLease. */
  print(streams: number): string {
    return [
      printSamples(
        'microvm_controller_calls_total',
        { help: 'Ended calls by method and status code.', type: 'counter' },
        [...this.#calls].map(([key, value]) => {
          const [method = '', code = ''] = key.split(' ')
          return { labels: { method, code }, value }
        }),
      ),
      printSamples(
        'microvm_controller_run_lease_streams',
        { help: 'Open calls of RunLease.', type: 'gauge' },
        [{ value: streams }],
      ),
      printSamples(
        'microvm_controller_etcd_seconds',
        { help: 'Time of the requests that etcd has answered.', type: 'histogram' },
        [{ value: this.#etcd.distribution }],
      ),
      printSamples(
        'microvm_controller_etcd_failures_total',
        { help: 'Requests to etcd that failed, by status code.', type: 'counter' },
        [...this.#etcdFailures].map(([code, value]) => ({ labels: { code }, value })),
      ),
    ].join('')
  }
}
