import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const FOLDERS = ['agent', 'base', 'handlers', 'hotplug', 'oci', 'os', 'rpc']
const NO_WAITS = ['src/base/abort.ts LONGEST_TIMER_MS']

const page = readFileSync(join(ROOT, 'docs/reference/waits.md'), 'utf8')
const rows = page
  .split('\n')
  .flatMap((line) => [
    ...line.matchAll(/^\|.*?\| ([\d.]+ (?:ms|s)) \|.*?`(src\/\S+\.ts)` ([A-Z_]+) \|(.*)$/g),
  ])
  .map(([, time = '', file = '', name = '', shown = '']) => ({ constant: `${file} ${name}`, time, shown }))

/** The agent's constants with a time in their names, in milliseconds. */
const constants = new Map(
  FOLDERS.flatMap((folder) => globSync(`src/${folder}/**/*.ts`, { cwd: ROOT })).flatMap((file) =>
    [
      ...readFileSync(join(ROOT, file), 'utf8').matchAll(
        /^(?:export )?const ([A-Z_]+_(?:MS|SECONDS)) = ([\d_]+)n?$/gm,
      ),
    ].map(([, name = '', value = '']) => [
      `${file} ${name}`,
      Number(value.replaceAll('_', '')) * (name.endsWith('_SECONDS') ? 1000 : 1),
    ]),
  ),
)

function msOf(time: string): number {
  const [number = '', unit] = time.split(' ')
  return Number(number) * (unit === 's' ? 1000 : 1)
}

describe('docs/reference/waits.md', () => {
  it('has a row for every constant of a wait, and no other', () => {
    const wanted = [...constants.keys()].filter((name) => !NO_WAITS.includes(name))
    expect(rows.map(({ constant }) => constant).sort()).toEqual(wanted.sort())
  })

  it.each(rows)('has the time of $constant', ({ constant, time }) => {
    expect(msOf(time)).toBe(constants.get(constant))
  })

  it.each(rows.filter(({ shown }) => shown.includes('›')))('names a test of $constant', ({ shown }) => {
    const [, file = '', name = ''] = /`(test\/\S+)` › (.*?) *\|/.exec(shown) ?? []
    expect(name).not.toBe('')
    expect(readFileSync(join(ROOT, file), 'utf8')).toContain(name)
  })
})
