import type { StepReport } from './replay.ts'

/** Prints the number of played steps. */
export function say(what: string, reports: readonly StepReport[]): void {
  process.stderr.write(`${what}: ${reports.length} steps\n`)
}
