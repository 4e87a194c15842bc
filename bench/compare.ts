import { readFileSync } from 'node:fs'
import { COUNT_NOISE, median } from './support/figure.ts'

export interface RunFigure {
  readonly unit: string
  /** The greatest acceptable ratio to the floor. */
  readonly limit?: number | undefined
  /** Of a count. */
  readonly spread?: number | undefined
  readonly values: readonly number[]
  readonly floors: readonly number[]
}

/** What `npm run bench -- --json FILE` writes. */
export interface Run {
  readonly commit: string
  readonly kernel: string
  readonly cpus: number
  readonly load: readonly number[]
  readonly rounds: number
  readonly figures: Readonly<Record<string, RunFigure>>
}

/** The smallest relative change that counts, even where the rounds do not overlap. */
const NOISE = 0.05
/** The same for a run of one round, which shows no spread. */
const NOISE_OF_ONE_ROUND = 0.15

export function readRun(path: string): Run {
  const run: Run = JSON.parse(readFileSync(path, 'utf8'))
  if (typeof run.figures !== 'object') throw new Error(`${path}: no run, want a file that --json has written`)
  return run
}

export function comparison(before: Run, after: Run): string {
  const rows = changesBetween(before.figures, after.figures)
  const changed = rows.filter(({ isChanged }) => isChanged)
  const worse = changed.filter(({ change }) => change > 0)
  return [
    `before: ${descriptionOf(before)}`,
    `after:  ${descriptionOf(after)}`,
    '',
    '| figure | before | after | change |',
    '|---|---|---|---|',
    ...rows.map(({ cells }) => `| ${cells.join(' | ')} |`),
    '',
    `${changed.length - worse.length} better beyond noise, ${worse.length} worse${namesOf(worse)}`,
    '',
  ].join('\n')
}

/** `change` above 0 means worse. */
export function changesBetween(before: Run['figures'], after: Run['figures']) {
  return Object.entries(after).flatMap(([name, figure]) => {
    const old = before[name]
    return old === undefined ? [] : [rowOf(name, old, figure)]
  })
}

function namesOf(rows: readonly { readonly cells: readonly string[] }[]): string {
  return rows.length === 0 ? '' : `: ${rows.map(({ cells }) => cells[0]).join('; ')}`
}

function descriptionOf({ commit, kernel, cpus, load, rounds }: Run): string {
  const shownLoad = load.map((each) => each.toFixed(1)).join(' to ')
  return `${commit}, ${rounds} rounds, kernel ${kernel}, ${cpus} CPUs, load ${shownLoad}`
}

function rowOf(name: string, before: RunFigure, after: RunFigure) {
  const [old, now] = [seriesOf(before), seriesOf(after)]
  const change = median(now) === median(old) ? 0 : median(now) / median(old) - 1
  const isApart = Math.min(...now) > Math.max(...old) || Math.max(...now) < Math.min(...old)
  const isOneRound = now.length === 1 || old.length === 1
  const noise = before.spread !== undefined ? COUNT_NOISE : isOneRound ? NOISE_OF_ONE_ROUND : NOISE
  const isChanged = isApart && Math.abs(change) > noise
  const percent = `${change < 0 ? '' : '+'}${(100 * change).toFixed(1)} %`
  const cells = [name, shown(before, old), shown(after, now), isChanged ? `**${percent}**` : percent]
  return { cells, change, isChanged }
}

/** The ratios to the floors, because a slow minute moves them less than the values; the values where a floor is 0. */
function seriesOf({ floors, values }: RunFigure): readonly number[] {
  return floors.includes(0) ? values : values.map((value, round) => value / (floors[round] ?? 1))
}

/** `1.12 (1.08 to 1.20), 4.1 ms`: the median ratio with its spread, and the median. */
function shown({ floors, unit, values }: RunFigure, series: readonly number[]): string {
  const value = `${rounded(median(values))} ${unit}`
  if (floors.includes(0)) return value
  const spread =
    series.length === 1 ? '' : ` (${rounded(Math.min(...series))} to ${rounded(Math.max(...series))})`
  return `${rounded(median(series))}${spread}, ${value}`
}

export function rounded(value: number): number {
  return Number(value.toPrecision(3))
}
