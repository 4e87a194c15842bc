import { globSync } from 'node:fs'
import { join } from 'node:path'
import type { Group } from './groups.ts'

/** The test files of a group whose paths contain one of the patterns, as vitest selects them. */
export function testFiles(root: string, group: Group, patterns: readonly string[]): readonly string[] {
  return globSync('test/**/*.test.ts', { cwd: root }).filter(
    (path) => groupOf(path) === group && patterns.some((pattern) => join(root, path).includes(pattern)),
  )
}

/** Whether a test file boots guests. */
export function bootsGuests(path: string): boolean {
  return /^test\/(hostile\/)?vm\//.test(path)
}

/** The group of a test file, as in vitest.config.ts. */
function groupOf(path: string): Group {
  if (path.startsWith('test/host/')) return 'host'
  if (path.startsWith('test/hostile/')) return 'hostile'
  if (path.startsWith('test/fuzz/')) return 'fuzz'
  if (path.startsWith('test/kills/')) return 'kills'
  return path.startsWith('test/vm/') ? 'vm' : 'unit'
}
