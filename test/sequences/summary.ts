import type { StepReport } from './replay.ts'

/** Prints the number of played steps, and always lists the pending ones. */
export function say(what: string, reports: readonly StepReport[]): void {
  const pending = reports.filter(({ outcome }) => outcome !== 'as recorded')
  const lines = pending.map(({ number, what: step, outcome }) => `  step ${number}, ${step}: ${outcome}\n`)
  process.stderr.write(`${what}: ${reports.length} steps, ${pending.length} pending\n${lines.join('')}`)
}
