import type { StepReport } from './replay.ts'

/** Prints how many steps were played, and which of them are still pending: that is never silent. */
export function say(what: string, reports: readonly StepReport[]): void {
  const pending = reports.filter(({ outcome }) => outcome !== 'as recorded')
  const lines = pending.map(({ number, what: step, outcome }) => `  step ${number}, ${step}: ${outcome}\n`)
  process.stderr.write(`${what}: ${reports.length} steps, ${pending.length} pending\n${lines.join('')}`)
}
