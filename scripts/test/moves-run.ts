import { figuresTable, readFigures } from './figures.ts'

export const MOVES = {
  count: 'MICROVM_MOVES',
  /** The seed of the first move; each has the next one. */
  seed: 'MICROVM_MOVES_SEED',
  /** How long each fault before a step lasts, in milliseconds. */
  steps: 'MICROVM_MOVES_STEPS',
  /** How long a grant of the machine's lease lasts, in milliseconds; 0 for none. */
  lease: 'MICROVM_MOVES_LEASE',
  /** The file to which the test appends its figures, one JSON line for each move. */
  figures: 'MICROVM_MOVES_FIGURES',
  /** The file that ends the run after the next move. */
  stop: 'MICROVM_MOVES_STOP',
} as const

export interface MovesRun {
  readonly count: number
  readonly seed: number
  readonly leaseTtlMs: number
  /** Of the moves with a fault before each step; undefined for moves with random faults. */
  readonly stepsLastMs?: number
}

/** What the environment of a test asks for; undefined for the share of `npm test`. */
export function movesAsked(environment: Readonly<Record<string, string | undefined>>): MovesRun | undefined {
  const { [MOVES.count]: count, [MOVES.lease]: lease = 0, [MOVES.seed]: seed = 0 } = environment
  const { [MOVES.steps]: steps } = environment
  return count === undefined
    ? undefined
    : {
        ...{ count: Number(count), seed: Number(seed), leaseTtlMs: Number(lease) },
        ...(steps !== undefined && { stepsLastMs: Number(steps) }),
      }
}

export interface MovesFigures {
  /** The fault without its moment. */
  readonly kind: string
  /** The one that had begun last when the fault happened; `failed` after a move that has failed before. */
  readonly step: string
  /** How many processes or wires the fault has met. */
  readonly met: number
  /** The whole fault. */
  readonly text: string
  readonly count: number
  /** How many machines run at the target. */
  readonly moved: number
  /** How many machines have been killed by the fault. */
  readonly ended: number
  readonly seconds: number
  /** From the end of the fault until the machine runs on one host. */
  readonly settledMs: number
}

/** A row for each kind of fault, those that met nothing apart, and one for each step that faults have met. */
export function movesTable(file: string): readonly string[] {
  const rows = readFigures<MovesFigures>(file)
  if (rows.length === 0) return []
  const head = ['', 'moves', 'at target', 'killed', 'seconds', 'settled ms'] as const
  const by = (those: readonly MovesFigures[], nameOf: (row: MovesFigures) => string) =>
    [...Map.groupBy(those, nameOf)]
      .toSorted(([one], [other]) => one.localeCompare(other))
      .map(([name, all]) => [name, ...cellsOf(all)] as const)
  const kindOf = ({ kind, met }: MovesFigures) => (kind === 'none' || met > 0 ? kind : `${kind}, none there`)
  const atSteps = by(
    rows.filter(({ met }) => met > 0),
    ({ step }) => step,
  )
  return [
    ...figuresTable('moves with a fault:', [head, ...by(rows, kindOf), ['all', ...cellsOf(rows)]]),
    ...(atSteps.length === 0 ? [] : figuresTable('the steps of the faults:', [head, ...atSteps])),
  ]
}

function cellsOf(rows: readonly MovesFigures[]): readonly (string | number)[] {
  const sum = (of: (row: MovesFigures) => number) => rows.reduce((all, row) => all + of(row), 0)
  const slowest = Math.max(...rows.map(({ settledMs }) => settledMs))
  return [
    ...[sum(({ count }) => count), sum(({ moved }) => moved), sum(({ ended }) => ended)],
    ...[sum(({ seconds }) => seconds).toFixed(0), slowest.toFixed(0)],
  ]
}
