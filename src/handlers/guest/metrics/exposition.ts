import { printSamples, type Sample } from '../../../base/exposition.ts'
import { METRICS, type MetricName } from './table.ts'

export interface Metric {
  readonly name: MetricName
  readonly samples: readonly Sample[]
}

/** The metric's text; empty when it has no samples. */
export function printMetric({ name, samples }: Metric): string {
  return printSamples(name, METRICS[name], samples)
}

/** Labels each sample by `item`, and leaves out items without a value. */
export function itemMetric(
  name: MetricName,
  items: Iterable<readonly [item: string, value: number | bigint | undefined]>,
): Metric {
  const samples = [...items].flatMap(([item, value]) =>
    value === undefined ? [] : [{ labels: { item }, value }],
  )
  return { name, samples }
}

export function singleMetric(name: MetricName, value: Sample['value']): Metric {
  return { name, samples: [{ value }] }
}

/** The numbers of lines such as `VmRSS:   1234 kB` or `pgfault 17`, by name and without their units. */
export function namedNumbers(text: string): Map<string, bigint> {
  const numbers = new Map<string, bigint>()
  for (const line of text.split('\n')) {
    const [, name, digits] = /^([^\s:]+):?\s+([0-9]+)(?:\s|$)/.exec(line) ?? []
    if (name !== undefined && digits !== undefined) numbers.set(name, BigInt(digits))
  }
  return numbers
}
