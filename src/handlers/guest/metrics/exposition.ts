import type { Distribution } from '../../../base/histogram.ts'
import { METRICS, type MetricName } from './table.ts'

export interface Metric {
  readonly name: MetricName
  readonly samples: readonly Sample[]
}

export interface Sample {
  readonly labels?: Readonly<Record<string, string>>
  /** A distribution for a histogram. */
  readonly value: number | bigint | Distribution
}

/** The metric in Prometheus' text exposition format 0.0.4; empty when it has no samples. */
export function printMetric({ name, samples }: Metric): string {
  if (samples.length === 0) return ''
  const { help, type } = METRICS[name]
  const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`]
  for (const { labels = {}, value } of samples) {
    if (typeof value === 'object') lines.push(...histogramLines(name, labels, value))
    else lines.push(`${name}${printed(labels)} ${value}`)
  }
  return `${lines.join('\n')}\n`
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

/** The buckets of a histogram are cumulative. */
function histogramLines(
  name: string,
  labels: Readonly<Record<string, string>>,
  seen: Distribution,
): string[] {
  const { bounds, counts, sum } = seen
  let count = 0
  const buckets = counts.map((each, index) => {
    count += each
    return `${name}_bucket${printed({ ...labels, le: String(bounds[index] ?? '+Inf') })} ${count}`
  })
  return [...buckets, `${name}_sum${printed(labels)} ${sum}`, `${name}_count${printed(labels)} ${count}`]
}

function printed(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`)
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function escaped(text: string): string {
  return /["\\\n]/.test(text)
    ? text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
    : text
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
