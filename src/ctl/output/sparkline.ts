const BARS = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const

/** A line of bars, the tallest for the largest of the numbers; all are lowest when no number exceeds 0. */
export function sparkline(numbers: readonly number[]): string {
  const most = Math.max(0, ...numbers)
  return numbers
    .map((number) => BARS[most === 0 ? 0 : Math.round((Math.max(0, number) / most) * (BARS.length - 1))])
    .join('')
}
