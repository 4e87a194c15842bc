import type { StepReport } from './replay.ts'

export function say(what: string, reports: readonly StepReport[]): void {
  process.stderr.write(`${what}: ${reports.length} steps\n`)
}
