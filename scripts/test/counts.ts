/** A test that did not run, and the reason. */
export interface SkippedTest {
  readonly name: string
  readonly reason: string
}

/** How long a test file took, its hooks included. */
export interface FileTime {
  readonly path: string
  readonly seconds: number
}

/** The counts of one part of a test run. */
export interface Counts {
  readonly passed: number
  readonly failed: number
  readonly skipped: readonly SkippedTest[]
  readonly files: readonly FileTime[]
  /** The paths of the files that have failed and ran once more. */
  readonly onceMore: readonly string[]
}

export const NOTHING: Counts = { passed: 0, failed: 0, skipped: [], files: [], onceMore: [] }

/** One entry of a run that is not a test, such as a check. */
export function oneEntry(ok: boolean): Counts {
  return { ...NOTHING, passed: ok ? 1 : 0, failed: ok ? 0 : 1 }
}

/** The sum of several counts. */
export function sum(parts: readonly Counts[]): Counts {
  return parts.reduce(
    (total, part) => ({
      passed: total.passed + part.passed,
      failed: total.failed + part.failed,
      skipped: [...total.skipped, ...part.skipped],
      files: [...total.files, ...part.files],
      onceMore: [...total.onceMore, ...part.onceMore],
    }),
    NOTHING,
  )
}

/** The last line of a run: `N passed, N failed`, and `, N skipped` when there are any. */
export function summaryLine(counts: Counts): string {
  const skipped = counts.skipped.length > 0 ? `, ${counts.skipped.length} skipped` : ''
  return `${counts.passed} passed, ${counts.failed} failed${skipped}`
}

/** The lines about the slowest test files, the slowest first; empty when no file ran. */
export function slowestLines(files: readonly FileTime[], count: number): readonly string[] {
  if (files.length === 0) return []
  const slowest = files.toSorted((a, b) => b.seconds - a.seconds).slice(0, count)
  return [
    'slowest files:',
    ...slowest.map(({ path, seconds }) => `${seconds.toFixed(1).padStart(7)} s ${path}`),
  ]
}
