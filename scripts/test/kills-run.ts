import { figuresTable, readFigures } from './figures.ts'
import { readRun } from './read-run.ts'

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

/** A part that is not named is left out; without any, all have the share of `npm test`. Throws on a wrong word. */
export function readKillsRun(args: readonly string[]): KillsRun {
  const { numbers, ...run } = readRun(args, ['kills', 'steps', 'lives'], '[PATTERN]…')
  if (numbers.size === 0) return { ...DEFAULT_SHARE, ...run }
  const of = (name: keyof KillsShare) => numbers.get(name) ?? 0
  return { kills: of('kills'), steps: of('steps'), lives: of('lives'), ...run }
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
