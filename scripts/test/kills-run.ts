import { figuresTable, readFigures } from './figures.ts'
import { numberAfter } from './number-option.ts'

export const KILLS = {
  kills: 'MICROVM_KILLS',
  steps: 'MICROVM_KILLS_STEPS',
  lives: 'MICROVM_KILLS_LIVES',
  /** The seed of the random choices. */
  seed: 'MICROVM_KILLS_SEED',
  /** The file to which each test appends its figures, one JSON line each. */
  figures: 'MICROVM_KILLS_FIGURES',
  /** Seconds between two progress lines of a test; without it none are written. */
  progressSeconds: 'MICROVM_KILLS_PROGRESS_SECONDS',
} as const

export interface KillsShare {
  readonly kills: number
  readonly steps: number
  readonly lives: number
}

/** Takes about a minute. */
export const DEFAULT_SHARE: KillsShare = { kills: 48, steps: 30, lives: 16 }

export interface KillsRun extends KillsShare {
  readonly seed: number
  readonly patterns: readonly string[]
}

const USAGE = 'want [--kills N] [--steps N] [--lives N] [--seed N] [PATTERN]…'

/** A part that is not named is left out; without any, all have the share of `npm test`. Throws on a wrong word. */
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

export interface KillsFigures {
  readonly what: string
  readonly runs: number
  readonly kills: number
  readonly seconds: number
}

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
