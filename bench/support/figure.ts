export interface Figure {
  readonly figure: string
  readonly value: number
  readonly unit: 'ms' | 'us' | 'KiB' | 'MiB' | 'descriptors' | 'processes' | 'wake-ups'
  /** The same measure without the agent. */
  readonly floor: number
  /** The greatest acceptable ratio of `value` to `floor`. */
  readonly limit: number
  /** The value of the minimal agent (bench/support/bare/minimal-agent-program.ts). */
  readonly minimal?: number
  readonly phases?: Readonly<Record<string, number>>
}

/** Prints a figure as one JSON line. A missed limit fails nothing. */
export function report(figure: Figure): void {
  const { value, floor, limit, minimal, phases, ...rest } = figure
  const line = {
    ...rest,
    value: round(value),
    floor: round(floor),
    limit: round(limit),
    ...(floor === 0 ? {} : { ratio: round(value / floor) }),
    ...(minimal === undefined
      ? {}
      : { minimal: round(minimal), minimalRatio: round(minimal / floor), toMinimal: round(value / minimal) }),
    ...(phases === undefined ? {} : { phases: rounded(phases) }),
  }
  process.stdout.write(`${JSON.stringify({ ...line, met: value <= floor * limit })}\n`)
}

/** Counts that differ by more than this are no figure; a change by less is none. */
export const COUNT_NOISE = 0.01

/** Prints a figure that was counted several times, unless the counts differ too much. */
export function reportCount(figure: string, values: readonly number[]): void {
  const value = median(values)
  const spread = (Math.max(...values) - Math.min(...values)) / value
  const line = { figure, value: round(value), unit: 'us', floor: 0, spread: round(spread) }
  if (spread <= COUNT_NOISE) process.stdout.write(`${JSON.stringify(line)}\n`)
  else process.stderr.write(`left out, because of its spread: ${JSON.stringify(line)}\n`)
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted[Math.floor(sorted.length / 2)]
  if (middle === undefined) throw new Error('no measurements')
  return middle
}

/** Leaves out extra CA certificates, which cost Node 30 ms at its start. */
export function benchEnvironment(): Record<string, string> {
  return { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' }
}

function rounded(values: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, round(value)]))
}

function round(value: number): number {
  return Number(value.toPrecision(4))
}
