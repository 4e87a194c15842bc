/** A test that did not run, and why. */
export interface SkippedTest {
  readonly name: string
  readonly reason: string
}

/** What a part of a test run came to. */
export interface Counts {
  readonly passed: number
  readonly failed: number
  readonly skipped: readonly SkippedTest[]
}

export const NOTHING: Counts = { passed: 0, failed: 0, skipped: [] }

/** One entry of a run that is not a test, such as a check. */
export function oneEntry(ok: boolean): Counts {
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1, skipped: [] }
}

/** All of them together. */
export function sum(parts: readonly Counts[]): Counts {
  return parts.reduce(
    (total, part) => ({
      passed: total.passed + part.passed,
      failed: total.failed + part.failed,
      skipped: [...total.skipped, ...part.skipped],
    }),
    NOTHING,
  )
}

/** The last line of a run: `N passed, N failed`, and `, N skipped` when there are any. */
export function summaryLine(counts: Counts): string {
  const skipped = counts.skipped.length > 0 ? `, ${counts.skipped.length} skipped` : ''
  return `${counts.passed} passed, ${counts.failed} failed${skipped}`
}
