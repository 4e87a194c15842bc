import { figuresTable, readFigures } from './figures.ts'
import { readRun } from './read-run.ts'

export const FUZZ = {
  cases: 'MICROVM_FUZZ_CASES',
  /** The seed of all random choices. */
  seed: 'MICROVM_FUZZ_SEED',
  replay: 'MICROVM_FUZZ_REPLAY',
  /** The file to which each target appends its figures, one JSON line each. */
  figures: 'MICROVM_FUZZ_FIGURES',
  /** Seconds between two progress lines of a target; without it none are written. */
  progressSeconds: 'MICROVM_FUZZ_PROGRESS_SECONDS',
} as const

/** Takes about a minute. */
export const DEFAULT_CASES = 80_000

export interface FuzzRun {
  readonly cases: number
  readonly seed: number
  readonly replay: string | undefined
  readonly patterns: readonly string[]
}

const OTHERS = '[--replay FILE/TARGET:SEED:PATH] [PATTERN]…'

/** Throws an error that names the wrong word. */
export function readFuzzRun(args: readonly string[]): FuzzRun {
  const at = args.indexOf('--replay')
  const replay = at < 0 ? undefined : replayAfter(args[at + 1])
  const rest = at < 0 ? args : args.toSpliced(at, 2)
  const { numbers, seed, patterns } = readRun(rest, ['cases'], OTHERS)
  const [file] = replay?.split('/', 1) ?? []
  return {
    ...{ cases: numbers.get('cases') ?? DEFAULT_CASES, seed, replay },
    patterns: file === undefined ? patterns : [`test/fuzz/${file}.test.ts`],
  }
}

function replayAfter(text: string | undefined): string {
  if (text !== undefined && parseCase(text) !== undefined) return text
  throw new Error(`--replay ${text ?? ''}: want FILE/TARGET:SEED:PATH, as a failure prints it`)
}

/** One case of a target: the seed of its batch, and its path in it as fast-check prints it. */
export interface FuzzCase {
  readonly target: string
  readonly seed: number
  readonly path: string
}

export function parseCase(text: string): FuzzCase | undefined {
  const [, target = '', seed, path = ''] =
    /^([a-z0-9-]+\/[a-z0-9-]+):(-?\d+):(\d+(?::\d+)*)$/.exec(text) ?? []
  return target === '' ? undefined : { target, seed: Number(seed), path }
}

export interface FuzzFigures {
  readonly target: string
  readonly cases: number
  readonly seconds: number
  readonly maxMs: number
  /** Growth of the resident memory in the second half of the cases. */
  readonly residentMib: number
  readonly usedMib: number
}

export function fuzzTable(file: string): readonly string[] {
  const rows = readFigures<FuzzFigures>(file)
  if (rows.length === 0) return []
  const total = rows.reduce(
    (sum, { cases, seconds }) => ({ cases: sum.cases + cases, seconds: sum.seconds + seconds }),
    {
      cases: 0,
      seconds: 0,
    },
  )
  return figuresTable('hostile input:', [
    ['target', 'cases', 'seconds', 'max ms', 'RSS +MiB', 'heap +MiB'],
    ...rows.map(
      ({ target, cases, seconds, maxMs, residentMib, usedMib }) =>
        [
          target,
          cases,
          seconds.toFixed(1),
          maxMs.toFixed(0),
          residentMib.toFixed(0),
          usedMib.toFixed(1),
        ] as const,
    ),
    ['all', total.cases, total.seconds.toFixed(1)],
  ])
}
