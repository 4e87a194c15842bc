/** One metric with all its samples. */
export interface Metric {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge'
  readonly samples: readonly Sample[]
}

/** One value of a metric, and its labels. */
export interface Sample {
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number | bigint
}

/** The metrics in Prometheus' text exposition format 0.0.4, without those that have no samples. */
export function printMetrics(metrics: readonly Metric[]): string {
  return metrics
    .filter(({ samples }) => samples.length > 0)
    .map(({ name, help, type, samples }) =>
      [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...samples.map((sample) => line(name, sample))]
        .map((text) => `${text}\n`)
        .join(''),
    )
    .join('')
}

/** A gauge whose samples are labelled by `item`; items without a value are left out. */
export function itemGauge(
  name: string,
  help: string,
  items: Iterable<readonly [item: string, value: number | bigint | undefined]>,
): Metric {
  const samples = [...items].flatMap(([item, value]) =>
    value === undefined ? [] : [{ labels: { item }, value }],
  )
  return { name, help, type: 'gauge', samples }
}

function line(name: string, { labels = {}, value }: Sample): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`)
  return `${name}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}`
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
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
