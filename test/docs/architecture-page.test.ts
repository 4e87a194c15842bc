import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')

function named(heading: string): readonly string[] {
  const [, section = ''] = page.split(`\n${heading}\n`)
  const [own = ''] = section.split(/\n##/)
  const cells = [...own.matchAll(/^\| (`[^|]+) \|/gm)].map(([, cell = '']) => cell)
  return cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name)).sort()
}

const foldersOf = (pattern: string) =>
  globSync(`${pattern}/`, { cwd: ROOT }).map((path) => path.replace(/\/$/, ''))

describe('docs/architecture.md', () => {
  it('has a row for each folder of the sources', () => {
    const split = ['src/agent', 'src/handlers']
    const whole = foldersOf('src/*').filter((folder) => !split.includes(folder))
    const expected = [...whole, ...foldersOf('src/agent/*'), 'src/agent/app.ts', 'src/handlers/*', 'scripts']
    expect(named('## Folders')).toEqual(expected.sort())
  })

  it('has a row for each handler', () => {
    expect(named('### The handlers')).toEqual(
      foldersOf('src/handlers/*')
        .map((folder) => basename(folder))
        .sort(),
    )
  })
})
