export interface SkippedTest {
  readonly name: string
  readonly reason: string
}

/** The hooks are included. */
export interface FileTime {
  readonly path: string
  readonly seconds: number
}

export interface Counts {
  readonly passed: number
  readonly failed: number
  readonly skipped: readonly SkippedTest[]
  readonly files: readonly FileTime[]
  readonly onceMore: readonly string[]
}

export const NOTHING: Counts = { passed: 0, failed: 0, skipped: [], files: [], onceMore: [] }

export function oneEntry(ok: boolean): Counts {
  return { ...NOTHING, passed: ok ? 1 : 0, failed: ok ? 0 : 1 }
}

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

export function summaryLine(counts: Counts): string {
  const skipped = counts.skipped.length > 0 ? `, ${counts.skipped.length} skipped` : ''
  return `${counts.passed} passed, ${counts.failed} failed${skipped}`
}

export function slowestLines(files: readonly FileTime[], count: number): readonly string[] {
  if (files.length === 0) return []
  const slowest = files.toSorted((a, b) => b.seconds - a.seconds).slice(0, count)
  return [
    'slowest files:',
    ...slowest.map(({ path, seconds }) => `${seconds.toFixed(1).padStart(7)} s ${path}`),
  ]
}
