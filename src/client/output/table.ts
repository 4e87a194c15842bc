import { plainText } from './text.ts'

export interface Column<Row> {
  readonly title: string
  readonly text: (row: Row) => string
  /** A narrow terminal drops the columns with the highest numbers first, and never those without a number. */
  readonly drop?: number
  readonly right?: boolean
}

const GAP = 2
const LEAST_WIDTH = 4

/** Lines of at most `width` characters: drops columns by `drop`, then truncates the widest columns. */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number | undefined,
): string {
  let shown = columns.map((column) => ({
    column,
    cells: [column.title, ...rows.map((row) => plainText(column.text(row)))],
  }))
  const widthOf = (cells: readonly string[]) => Math.max(...cells.map((cell) => cell.length))
  const total = () => shown.reduce((sum, { cells }) => sum + widthOf(cells) + GAP, -GAP)
  if (width !== undefined) {
    while (total() > width) {
      const next = shown
        .filter(({ column }) => column.drop !== undefined)
        .toSorted((one, other) => (other.column.drop ?? 0) - (one.column.drop ?? 0))[0]
      if (next === undefined) break
      shown = shown.filter((each) => each !== next)
    }
  }
  const widths = narrowed(
    shown.map(({ cells }) => widthOf(cells)),
    width,
  )
  const lines = [undefined, ...rows].map((_row, index) =>
    shown
      .map(({ cells, column }, at) => {
        const text = truncated(cells[index] ?? '', widths[at] ?? 0)
        if (column.right) return text.padStart(widths[at] ?? 0)
        return at === shown.length - 1 ? text : text.padEnd(widths[at] ?? 0)
      })
      .join(' '.repeat(GAP)),
  )
  return lines.map((line) => `${width === undefined ? line : line.slice(0, width)}\n`).join('')
}

/** Takes from the widest column until all fit. */
function narrowed(widths: readonly number[], width: number | undefined): readonly number[] {
  const result = [...widths]
  if (width === undefined) return result
  const total = () => result.reduce((sum, each) => sum + each + GAP, -GAP)
  for (let excess = total() - width; excess > 0; excess -= 1) {
    const widest = result.indexOf(Math.max(...result))
    const before = result[widest] ?? 0
    if (before <= LEAST_WIDTH) break
    result[widest] = before - 1
  }
  return result
}

function truncated(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`
}
