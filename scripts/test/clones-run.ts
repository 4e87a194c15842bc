import { figuresTable, readFigures } from './figures.ts'
import { readRun } from './read-run.ts'

export const CLONES = {
  count: 'MICROVM_CLONES',
  /** Says which one is killed. */
  seed: 'MICROVM_CLONES_SEED',
  /** The file to which each form of memory appends its figures, one JSON line each. */
  figures: 'MICROVM_CLONES_FIGURES',
} as const

/** What `npm test` makes in each form. */
const FEW = 2
const MOST = 100

export interface ClonesRun {
  readonly count: number
  readonly seed: number
}

/** Throws on a wrong word. */
export function readClonesRun(args: readonly string[]): ClonesRun {
  const { numbers, seed } = readRun(args, ['count'])
  const count = numbers.get('count') ?? 20
  if (count < FEW || count > MOST) throw new Error(`--count ${count}: want a number from ${FEW} to ${MOST}`)
  return { count, seed }
}

/** What the environment of a test asks for. */
export function clonesShare(
  environment: Readonly<Record<string, string | undefined>>,
): ClonesRun & { readonly isLong: boolean } {
  const { [CLONES.count]: count = FEW, [CLONES.seed]: seed = 0 } = environment
  return { count: Number(count), seed: Number(seed), isLong: environment[CLONES.count] !== undefined }
}

export interface ClonesFigures {
  readonly form: string
  readonly count: number
  /** Until all were ready. */
  readonly seconds: number
  /** The guest's memory that each has for itself. */
  readonly ownMib: readonly number[]
}

export function clonesTable(file: string): readonly string[] {
  const rows = readFigures<ClonesFigures>(file)
  if (rows.length === 0) return []
  return figuresTable('clones beside each other:', [
    ['memory', 'clones', 'seconds', 'least MiB', 'median', 'most'],
    ...rows.map(({ form, count, seconds, ownMib }) => {
      const sorted = ownMib.toSorted((one, other) => one - other)
      const at = (index: number) => (sorted.at(index) ?? 0).toFixed(1)
      return [form, count, seconds.toFixed(1), at(0), at(Math.floor(sorted.length / 2)), at(-1)] as const
    }),
  ])
}
