import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const SAMPLE_RULES = readFileSync(join(import.meta.dirname, '../../fixtures/iptables.rules'), 'utf8')

/** Rules as the tools print them, sorted, without times and counters. */
export function rulesOf(text: string): readonly string[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.replace(/\[\d+:\d+\]/, ''))
    .toSorted()
}
