import type { Distribution } from './histogram.ts'

export interface Sample {
  readonly labels?: Readonly<Record<string, string>>
  /** A distribution for a histogram. */
  readonly value: number | bigint | Distribution
}

/** A metric in Prometheus' text exposition format 0.0.4; empty when it has no samples. */
export function printSamples(
  name: string,
  { help, type }: { readonly help: string; readonly type: string },
  samples: readonly Sample[],
): string {
  if (samples.length === 0) return ''
  const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`]
  for (const { labels = {}, value } of samples) {
    if (typeof value === 'object') lines.push(...histogramLines(name, labels, value))
    else lines.push(`${name}${printed(labels)} ${value}`)
  }
  return `${lines.join('\n')}\n`
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
