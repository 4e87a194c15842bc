import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { changesBetween, type Run, type RunFigure, readRun, rounded } from './compare.ts'
import { median } from './support/figure.ts'

const root = join(import.meta.dirname, '..')

/** The reference figures, each from the last run with `--keep`. */
export const KEPT_FILE = join(root, 'bench/kept.json')

export const KEPT_PAGE = join(root, 'docs/reference/performance.md')

type Origin = Pick<Run, 'commit' | 'kernel' | 'cpus' | 'load' | 'rounds'>

export type Kept = Readonly<Record<string, RunFigure & { readonly origin: Origin }>>

export function readKept(): Kept {
  if (!existsSync(KEPT_FILE)) return {}
  const { figures } = readRun(KEPT_FILE)
  return figures as Kept
}

export function keep({ figures, ...origin }: Run): void {
  const now = Object.entries(figures).map(([name, figure]) => [name, { ...figure, origin }] as const)
  const kept = { ...readKept(), ...Object.fromEntries(now) }
  writeFileSync(KEPT_FILE, `${JSON.stringify({ figures: kept }, undefined, 1)}\n`)
  mkdirSync(dirname(KEPT_PAGE), { recursive: true })
  writeFileSync(KEPT_PAGE, keptPage(kept))
}

export function worseThanKept(run: Run): string {
  const worse = changesBetween(readKept(), run.figures).filter(
    ({ isChanged, change }) => isChanged && change > 0,
  )
  if (worse.length === 0) return 'no figure is worse than kept\n'
  const shown = worse.map(({ cells: [name, before, after] }) => `${name}: ${before} → ${after}`)
  return `worse than kept: ${shown.join('; ')}\n`
}

export function keptPage(kept: Kept): string {
  const rows = Object.entries(kept).map(([name, { unit, limit, values, floors, origin }]) => {
    const { commit, kernel, cpus, load, rounds } = origin
    const [value, floor] = [median(values), median(floors)]
    const ratio = floor === 0 ? '–' : `${rounded(value / floor)}`
    const isMissed = limit !== undefined && value > floor * limit
    return [
      ...[
        name,
        `${rounded(value)} ${unit}`,
        `${rounded(floor)}`,
        isMissed ? `**${ratio}**` : ratio,
        `${limit ?? '–'}`,
      ],
      `${commit}, ${rounds} rounds, Linux ${kernel}, ${cpus} CPUs, load ${load.map((each) => each.toFixed(1)).join(' to ')}`,
    ]
  })
  return [
    '# Figures that are kept',
    '',
    'Made by `npm run bench -- --keep`. Medians; a ratio above its limit is bold. [Performance](../performance.md#figures)',
    'says how to find what a figure is.',
    '',
    '| figure | value | floor | ratio | limit | measured |',
    '|---|---|---|---|---|---|',
    ...rows.map((row) => `| ${row.join(' | ')} |`),
    '',
  ].join('\n')
}
