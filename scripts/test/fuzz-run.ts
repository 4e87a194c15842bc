import { figuresTable, readFigures } from './figures.ts'
import { numberAfter } from './number-option.ts'

/** The variables by which a run of the fuzz group is set, each a text. */
export const FUZZ = {
  /** The number of cases of the whole group. */
  cases: 'MICROVM_FUZZ_CASES',
  /** The number that all random choices of a run follow from. */
  seed: 'MICROVM_FUZZ_SEED',
  /** The one case to run, as {@link parseCase} reads it. */
  replay: 'MICROVM_FUZZ_REPLAY',
  /** The file to which each target appends its figures, one JSON line each. */
  figures: 'MICROVM_FUZZ_FIGURES',
  /** Seconds between two lines about the progress of a target; none without it. */
  progressSeconds: 'MICROVM_FUZZ_PROGRESS_SECONDS',
} as const

/** The cases of `npm test`: about a minute. */
export const DEFAULT_CASES = 80_000

/** What `npm run fuzz` is to do. */
export interface FuzzRun {
  readonly cases: number
  readonly seed: number
  /** `FILE/TARGET:SEED:PATH`. */
  readonly replay: string | undefined
  /** Parts of the paths of test files; empty for all files. */
  readonly patterns: readonly string[]
}

const USAGE = 'want [--cases N] [--seed N] [--replay FILE/TARGET:SEED:PATH] [PATTERN]…'

/** Reads the arguments of `npm run fuzz`. Throws an error that names the wrong word. */
export function readFuzzRun(args: readonly string[], randomSeed: number): FuzzRun {
  const patterns: string[] = []
  let cases = DEFAULT_CASES
  let seed = randomSeed
  let replay: string | undefined
  const words = args[Symbol.iterator]()
  for (const word of words) {
    if (word === '--cases') cases = numberAfter(word, words.next().value, 1_000_000_000)
    else if (word === '--seed') seed = numberAfter(word, words.next().value, 0x7fffffff)
    else if (word === '--replay') replay = replayAfter(words.next().value)
    else if (word.startsWith('-')) throw new Error(`unknown option ${word}: ${USAGE}`)
    else patterns.push(word)
  }
  const [file] = replay?.split('/', 1) ?? []
  return { cases, seed, replay, patterns: file === undefined ? patterns : [`test/fuzz/${file}.test.ts`] }
}

function replayAfter(text: string | undefined): string {
  if (text !== undefined && parseCase(text) !== undefined) return text
  throw new Error(`--replay ${text ?? ''}: want FILE/TARGET:SEED:PATH, as a failure prints it`)
}

/** One case of a target: the seed of its batch, and its path in it as fast-check has it. */
export interface FuzzCase {
  readonly target: string
  readonly seed: number
  readonly path: string
}

/** Parses `FILE/TARGET:SEED:PATH`; undefined when it is something else. */
export function parseCase(text: string): FuzzCase | undefined {
  const [, target = '', seed, path = ''] =
    /^([a-z0-9-]+\/[a-z0-9-]+):(-?\d+):(\d+(?::\d+)*)$/.exec(text) ?? []
  return target === '' ? undefined : { target, seed: Number(seed), path }
}

/** What the cases of one target took. */
export interface FuzzFigures {
  readonly target: string
  readonly cases: number
  readonly seconds: number
  /** The longest case. */
  readonly maxMs: number
  /** How much larger the process was at the end than after half of the cases. */
  readonly residentMib: number
  /** How much more of the heap was in use at the end than at the start. */
  readonly usedMib: number
}

/** The table of targets for the end of a run, line by line; empty when none has ended. */
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
