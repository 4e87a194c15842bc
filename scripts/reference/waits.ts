import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { projectRoot } from '../../src/build/project.ts'

const FOLDERS = ['agent', 'base', 'handlers', 'hotplug', 'oci', 'os', 'rpc']
const NO_WAITS = ['src/base/abort.ts LONGEST_TIMER_MS']
const CONSTANT = /^(?:export )?const ([A-Z_]+_(?:MS|SECONDS)) = ([\d_]+)n?$/gm
/** A row: what waits, the time, and cells among which one names the constant. */
const ROW = /^(\|.*?\| )[\d.]+ (?:ms|s)( \|.*?`(src\/\S+\.ts)` ([A-Z_]+) \|.*)$/gm

/**
 * Writes the times of the agent's constants into the rows of the page, whose words stay. Throws for a constant without a row,
 * and for a row without a constant.
 */
export function waitsPage(page: string): string {
  const constants = waitsOfCode()
  const missing = new Set(constants.keys())
  const written = page.replace(ROW, (_row, before: string, after: string, file: string, name: string) => {
    const constant = `${file} ${name}`
    const ms = constants.get(constant)
    if (ms === undefined) throw new Error(`${constant}: not found in the code`)
    missing.delete(constant)
    return `${before}${timeText(ms)}${after}`
  })
  if (missing.size > 0) throw new Error(`waits.md has no row for ${[...missing].join(', ')}`)
  return written
}

/** The agent's constants with a time in their names, in milliseconds. */
function waitsOfCode(): ReadonlyMap<string, number> {
  const files = FOLDERS.flatMap((folder) => globSync(`src/${folder}/**/*.ts`, { cwd: projectRoot }))
  const waits = files.flatMap((file) =>
    [...readFileSync(join(projectRoot, file), 'utf8').matchAll(CONSTANT)].map(
      ([, name = '', value = '']) =>
        [
          `${file} ${name}`,
          Number(value.replaceAll('_', '')) * (name.endsWith('_SECONDS') ? 1000 : 1),
        ] as const,
    ),
  )
  return new Map(waits.filter(([constant]) => !NO_WAITS.includes(constant)))
}

function timeText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`
}
