import { globSync } from 'node:fs'
import { join } from 'node:path'
import type { Group } from './groups.ts'

/** Selects files by pattern as vitest does. */
export function testFiles(root: string, group: Group, patterns: readonly string[]): readonly string[] {
  return globSync('test/**/*.test.ts', { cwd: root }).filter(
    (path) => groupOf(path) === group && patterns.some((pattern) => join(root, path).includes(pattern)),
  )
}

export function bootsGuests(path: string): boolean {
  return /^test\/(hostile\/)?vm\//.test(path)
}

/** Chance chooses what these do, and what it found once is a finding. */
const CHANCE = /\/(bulk-faults|controller\/cuts|handover-cuts|random-moves|instance\/lives)\.test\.ts$/

export function mayRunOnceMore(path: string): boolean {
  const group = groupOf(path)
  return group !== 'fuzz' && group !== 'kills' && !CHANCE.test(path)
}

/** Agrees with vitest.config.ts. */
function groupOf(path: string): Group {
  if (path.startsWith('test/host/')) return 'host'
  if (path.startsWith('test/hostile/')) return 'hostile'
  if (path.startsWith('test/fuzz/')) return 'fuzz'
  if (path.startsWith('test/kills/')) return 'kills'
  return path.startsWith('test/vm/') ? 'vm' : 'unit'
}
