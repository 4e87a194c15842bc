import { figuresTable, readFigures } from './figures.ts'
import { numberAfter } from './number-option.ts'

/** The variables by which a run of the kills group is set, each a text. */
export const KILLS = {
  /** The number of kills at random moments. */
  kills: 'MICROVM_KILLS',
  /** The number of deaths at enumerated steps. */
  steps: 'MICROVM_KILLS_STEPS',
  /** The number of life cycles. */
  lives: 'MICROVM_KILLS_LIVES',
  /** The number that the random choices of a run follow from. */
  seed: 'MICROVM_KILLS_SEED',
  /** The file to which each test appends its figures, one JSON line each. */
  figures: 'MICROVM_KILLS_FIGURES',
  /** Seconds between two lines about the progress of a test; none without it. */
  progressSeconds: 'MICROVM_KILLS_PROGRESS_SECONDS',
} as const

/** How much of each part a run does. */
export interface KillsShare {
  readonly kills: number
  readonly steps: number
  readonly lives: number
}

/** The share of `npm test`: about a minute. */
export const DEFAULT_SHARE: KillsShare = { kills: 48, steps: 30, lives: 16 }

/** What `npm run kills` is to do. */
export interface KillsRun extends KillsShare {
  readonly seed: number
  /** Parts of the paths of test files; empty for all files. */
  readonly patterns: readonly string[]
}

const USAGE = 'want [--kills N] [--steps N] [--lives N] [--seed N] [PATTERN]…'

/**
 * Reads the arguments of `npm run kills`. The parts that are not named are left out; without any, all have the share of
 * `npm test`. Throws an error that names the wrong word.
 */
export function readKillsRun(args: readonly string[], randomSeed: number): KillsRun {
  const patterns: string[] = []
  const named: { kills?: number; steps?: number; lives?: number } = {}
  let seed = randomSeed
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--kills' || word === '--steps' || word === '--lives')
      named[word === '--kills' ? 'kills' : word === '--steps' ? 'steps' : 'lives'] = numberAfter(
        word,
        words.next().value,
        1_000_000_000,
      )
    else if (word === '--seed') seed = numberAfter(word, words.next().value, 0x7fffffff)
    else if (word.startsWith('-')) throw new Error(`unknown option ${word}: ${USAGE}`)
    else patterns.push(word)
  }
  const share = Object.keys(named).length === 0 ? DEFAULT_SHARE : { kills: 0, steps: 0, lives: 0, ...named }
  return { ...share, seed, patterns }
}

/** What one test has done. */
export interface KillsFigures {
  readonly what: string
  /** Replays, or life cycles. */
  readonly runs: number
  readonly kills: number
  readonly seconds: number
}

/** The table of tests for the end of a run, line by line; empty when none has ended. */
export function killsTable(file: string): readonly string[] {
  const rows = readFigures<KillsFigures>(file)
  if (rows.length === 0) return []
  const total = rows.reduce(
    (sum, { runs, kills, seconds }) => ({
      runs: sum.runs + runs,
      kills: sum.kills + kills,
      seconds: sum.seconds + seconds,
    }),
    { runs: 0, kills: 0, seconds: 0 },
  )
  return figuresTable('agents killed:', [
    ['', 'runs', 'kills', 'seconds'],
    ...rows.map(({ what, runs, kills, seconds }) => [what, runs, kills, seconds.toFixed(1)] as const),
    ['all', total.runs, total.kills, total.seconds.toFixed(1)],
  ])
}
