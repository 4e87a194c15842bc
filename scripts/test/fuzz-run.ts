import { figuresTable, readFigures } from './figures.ts'
import { numberAfter } from './number-option.ts'

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

const USAGE = 'want [--cases N] [--seed N] [--replay FILE/TARGET:SEED:PATH] [PATTERN]…'

/** Throws an error that names the wrong word. */
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
