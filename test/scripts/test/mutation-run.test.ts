import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  EQUIVALENT,
  mutationTable,
  readMutationRun,
  strykerOptions,
  TARGETS,
} from '../../../scripts/test/mutation-run.ts'
import { projectRoot } from '../../../src/build/project.ts'

describe('readMutationRun', () => {
  it('has only files that exist, and notes about code that they have', () => {
    const options = strykerOptions(TARGETS).vitest as { readonly configFile: string }
    const files = [options.configFile, ...TARGETS.flatMap(({ file, tests }) => [file, ...tests])]
    expect(files.filter((file) => !existsSync(join(projectRoot, file)))).toEqual([])
    for (const [file, changes] of Object.entries(EQUIVALENT)) {
      const source = readFileSync(join(projectRoot, file), 'utf8')
      for (const change of Object.keys(changes)) expect(source).toContain(change.split(' => ')[0])
    }
  })

  it('selects targets by patterns', () => {
    expect(readMutationRun([])).toEqual(TARGETS)
    expect(readMutationRun(['journal']).map(({ file }) => file)).toEqual(['src/state/request-journal.ts'])
    expect(() => readMutationRun(['jornal'])).toThrow('jornal: no target, want a part of src/')
  })
})

describe('mutationTable', () => {
  const file = 'src/state/request-journal.ts'
  const mutant = (status: string, replacement = 'x') => {
    return { status, replacement, location: { start: { line: 2, column: 3 }, end: { line: 3, column: 2 } } }
  }
  const tableOf = (...mutants: ReturnType<typeof mutant>[]) => {
    return mutationTable({ files: { [file]: { source: 'a\n  b(\n)\n', mutants } } }, [{ file, tests: [] }])
  }
  const killed = Array.from({ length: 7 }, () => mutant('Killed'))

  it('counts what was noticed, leaves out what could not run, and names what survived', () => {
    const { lines } = tableOf(...killed, mutant('Timeout'), mutant('RuntimeError'), mutant('Survived', ''))
    expect(lines[0]).toBe(`${file}:2: b( ) => `)
    expect(lines.find((line) => line.startsWith(`    ${file}`))?.split(/ +/)).toEqual([
      '',
      file,
      '9',
      '8',
      '1',
      '88.9',
    ])
  })

  it('fails below 80 percent, and when a mutant that is called equivalent was noticed', () => {
    const { lines, ok } = tableOf(...killed, mutant('NoCoverage'), mutant('Survived'))
    expect(ok).toBe(false)
    expect(lines).toContain(`${file}: score 77.8, want at least 80`)
    expect(lines).toContain(`${file}: noticed, so not equivalent: one < other => one <= other`)
  })
})
