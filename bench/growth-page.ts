import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')

export const GROWTH_FILE = join(root, 'bench/growth.json')

/** How a cost grows with a number. */
export interface Series {
  readonly title: string
  /** What each column holds, in one sentence. */
  readonly text: string
  /** The heads of the columns; the first is the number that grows, or a name. Those with the unit of the second one are drawn. */
  readonly columns: readonly string[]
  readonly rows: readonly (readonly (number | string)[])[]
  /** The commit, the kernel, the CPUs and the load of the machine. */
  readonly measured: string
}

export type Growth = Readonly<Record<string, Series>>

export function readGrowth(): Growth {
  return existsSync(GROWTH_FILE) ? JSON.parse(readFileSync(GROWTH_FILE, 'utf8')) : {}
}

export function keepGrowth(measured: Growth): void {
  writeFileSync(GROWTH_FILE, `${JSON.stringify({ ...readGrowth(), ...measured }, undefined, 1)}\n`)
}

export function growthPage(growth: Growth): string {
  const sections = Object.entries(growth).map(([name, series]) => [
    `## ${series.title}`,
    '',
    ...(isDrawn(series) ? [`![${series.title}](growth-${name}.svg)`, ''] : []),
    series.text,
    '',
    ...tableOf(series),
    '',
    `Measured on ${series.measured}.`,
    '',
  ])
  return [
    '# How costs grow',
    '',
    'Made by `npm run bench -- growth --keep` and `npm run gen`. Both axes of a picture are logarithmic, so a cost that grows with',
    'the number is a line that rises by one decade in each decade, and a cost that does not grow is level.',
    '',
    ...sections.flat(),
  ].join('\n')
}

export function tableOf({ columns, rows }: Series): readonly string[] {
  const row = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |`
  return [row(columns), row(columns.map(() => '---')), ...rows.map((cells) => row(cells.map(shown)))]
}

function shown(value: number | string): string {
  if (typeof value === 'string') return value
  return (Number.isInteger(value) ? value : Number(value.toPrecision(3))).toLocaleString('en-US')
}

/** A series of names has no picture. */
export function isDrawn({ rows }: Series): boolean {
  return rows.every(([first]) => typeof first === 'number')
}

const WIDTH = 640
const HEIGHT = 320
const MARGIN = 48
const COLOURS = ['#3b7dd8', '#d8663b', '#3ba86a', '#a05bc4']

/** A picture of the columns that have the unit of the second one, with a line for each. */
export function growthPicture({ title, columns, rows }: Series): string {
  const drawn = columns
    .map((_, index) => index)
    .filter((index) => unitOf(columns[index]) === unitOf(columns[1]))
  const numbers = rows.map((row) => row.map(Number))
  const x = scaleOf(
    numbers.map(([first = 1]) => first),
    [MARGIN, WIDTH - MARGIN],
  )
  const y = scaleOf(
    numbers.flatMap((row) => drawn.map((index) => row[index] ?? 1)),
    [HEIGHT - MARGIN, MARGIN],
  )
  const grid = [
    ...x.decades.map((at) => line([x.place(at), MARGIN], [x.place(at), HEIGHT - MARGIN])),
    ...y.decades.map((at) => line([MARGIN, y.place(at)], [WIDTH - MARGIN, y.place(at)])),
    ...x.decades.map((at) =>
      label(at.toLocaleString('en-US'), [x.place(at), HEIGHT - MARGIN + 16], 'middle'),
    ),
    ...y.decades.map((at) => label(at.toLocaleString('en-US'), [MARGIN - 6, y.place(at) + 4], 'end')),
  ]
  const lines = drawn.map((index, order) => {
    const points = numbers.map((row) => `${x.place(row[0] ?? 1)},${y.place(row[index] ?? 1)}`).join(' ')
    const colour = COLOURS[order % COLOURS.length]
    const name = label(columns[index] ?? '', [MARGIN + 12, MARGIN + 16 * (order + 1)], 'start', colour)
    return `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${points}"/>\n${name}`
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<title>${title}</title>`,
    ...grid,
    label(columns[0] ?? '', [WIDTH / 2, HEIGHT - 12], 'middle'),
    ...lines,
    '</svg>',
    '',
  ].join('\n')
}

/** `ms` of `create and start, ms`. */
function unitOf(column = ''): string {
  return column.split(', ').at(-1) ?? ''
}

interface Scale {
  /** Whole decades that enclose the values. */
  readonly decades: readonly number[]
  place(value: number): number
}

function scaleOf(values: readonly number[], [from, to]: readonly [number, number]): Scale {
  const logs = values.map((value) => Math.log10(Math.max(value, 1e-3)))
  const [low, high] = [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs))]
  const span = Math.max(1, high - low)
  return {
    decades: Array.from({ length: span + 1 }, (_, index) => 10 ** (low + index)),
    place: (value) => {
      const share = (Math.log10(Math.max(value, 1e-3)) - low) / span
      return Number((from + share * (to - from)).toFixed(1))
    },
  }
}

type Point = readonly [x: number, y: number]

function line([x1, y1]: Point, [x2, y2]: Point): string {
  return `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="#8888" stroke-width="0.5"/>`
}

function label(text: string, [x, y]: Point, anchor: string, colour = '#808080'): string {
  return `<text x="${x}" y="${y}" text-anchor="${anchor}" fill="${colour}">${text}</text>`
}
