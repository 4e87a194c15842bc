import { existsSync, readFileSync } from 'node:fs'

/** Reads the JSON lines that the tests of this run have appended to `file`; empty without it. */
export function readFigures<Figures>(file: string): readonly Figures[] {
  if (!existsSync(file)) return []
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Figures)
}

/** The lines of a table below its title. A row is a name and its cells; the first row is the head. */
export function figuresTable(
  title: string,
  rows: readonly (readonly [name: string, ...cells: readonly (string | number)[]])[],
): readonly string[] {
  const width = Math.max(...rows.map(([name]) => name.length))
  return [
    title,
    ...rows.map(
      ([name, ...cells]) =>
        `    ${name.padEnd(width)} ${cells.map((cell) => String(cell).padStart(10)).join('')}`,
    ),
  ]
}
