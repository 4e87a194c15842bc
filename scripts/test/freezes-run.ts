import { figuresTable, readFigures } from './figures.ts'
import { randomSeed } from './read-run.ts'

export const FREEZES = {
  count: 'MICROVM_FREEZES',
  /** The seed of the random choices. */
  seed: 'MICROVM_FREEZES_SEED',
  /** The file to which each test appends its figures, one JSON line each. */
  figures: 'MICROVM_FREEZES_FIGURES',
  /** The file that ends the run after the next freeze. */
  stop: 'MICROVM_FREEZES_STOP',
  /** Seconds between two progress lines; without it none are written. */
  progressSeconds: 'MICROVM_FREEZES_PROGRESS_SECONDS',
} as const

/** What `npm test` takes, of all ways together. */
export const DEFAULT_COUNT = 6

/** What the environment of a test asks for. */
export function freezesShare(environment: Readonly<Record<string, string | undefined>>): {
  readonly count: number
  readonly seed: number
  readonly progressMs: number
} {
  return {
    count: Number(environment[FREEZES.count] ?? DEFAULT_COUNT),
    seed: Number(environment[FREEZES.seed] ?? randomSeed()),
    progressMs: Number(environment[FREEZES.progressSeconds] ?? Number.POSITIVE_INFINITY) * 1000,
  }
}

export interface FreezesFigures {
  readonly kind: string
  readonly count: number
  readonly seconds: number
  readonly slowestAnswerMs: number
}

export function freezesTable(file: string): readonly string[] {
  const rows = byKind(readFigures<FreezesFigures>(file))
  if (rows.length === 0) return []
  return figuresTable('guests frozen:', [
    ['', 'freezes', 'seconds', 'answer ms'],
    ...rows.map(
      ({ kind, count, seconds, slowestAnswerMs }) =>
        [kind, count, seconds.toFixed(1), slowestAnswerMs.toFixed(0)] as const,
    ),
    ['all', rows.reduce((sum, { count }) => sum + count, 0)],
  ])
}

function byKind(figures: readonly FreezesFigures[]): readonly FreezesFigures[] {
  const rows = new Map<string, FreezesFigures>()
  for (const { kind, count, seconds, slowestAnswerMs } of figures) {
    const known = rows.get(kind) ?? { count: 0, seconds: 0, slowestAnswerMs: 0 }
    rows.set(kind, {
      ...{ kind, count: known.count + count, seconds: known.seconds + seconds },
      slowestAnswerMs: Math.max(known.slowestAnswerMs, slowestAnswerMs),
    })
  }
  return [...rows.values()].toSorted((one, other) => one.kind.localeCompare(other.kind))
}
