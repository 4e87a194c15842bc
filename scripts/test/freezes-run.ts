import { figuresTable, readFigures } from './figures.ts'
import { numberAfter } from './number-option.ts'

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

/** What `npm test` takes, of both ways together. */
export const DEFAULT_COUNT = 4

const LARGEST_SEED = 0x7fffffff

export interface FreezesRun {
  readonly count: number
  readonly seed: number
}

/** Throws on a wrong word. */
export function readFreezesRun(args: readonly string[], randomSeed: number): FreezesRun {
  let run = { count: DEFAULT_COUNT, seed: randomSeed }
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--count') run = { ...run, count: numberAfter(word, words.next().value, 1_000_000) }
    else if (word === '--seed') run = { ...run, seed: numberAfter(word, words.next().value, LARGEST_SEED) }
    else throw new Error(`unknown option ${word}: want [--count N] [--seed S]`)
  }
  return run
}

/** What the environment of a test asks for. */
export function freezesShare(
  environment: Readonly<Record<string, string | undefined>>,
): FreezesRun & { readonly progressMs: number } {
  return {
    count: Number(environment[FREEZES.count] ?? DEFAULT_COUNT),
    seed: Number(environment[FREEZES.seed] ?? Math.floor(Math.random() * LARGEST_SEED)),
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
