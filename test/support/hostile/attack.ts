import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ATTACK_FIGURES_VARIABLE, type AttackFigures } from '../../../scripts/test/attack-figures.ts'

export interface Target {
  readonly where: AttackFigures['where']
  check(): Promise<unknown>
  residentMib(): number | Promise<number>
}

const PAUSE_MS = 10

/**
 * Calls Health.Check during `attack` and at least three times after it, and records a row of the table of attacks; `left`
 * counts the leftovers. Throws when `attack` or a check fails.
 */
export async function underAttack<T>(
  name: string,
  { where, check, residentMib }: Target,
  attack: () => Promise<T>,
  left: () => number | Promise<number>,
): Promise<{ readonly result: T; readonly figures: AttackFigures }> {
  let isOver = false
  const running = attack().finally(() => {
    isOver = true
  })
  const times: number[] = []
  let peakMib = 0
  const probing = (async () => {
    for (let after = 0; after < 3; after += isOver ? 1 : 0) {
      const begin = performance.now()
      await check()
      times.push(performance.now() - begin)
      peakMib = Math.max(peakMib, await residentMib())
      await sleep(PAUSE_MS)
    }
  })()
  const [result] = await Promise.all([running, probing])
  const sorted = times.toSorted((a, b) => a - b)
  const at = (part: number) => sorted[Math.floor(part * (sorted.length - 1))] ?? Number.NaN
  const figures = {
    attack: name,
    where,
    checks: sorted.length,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    maxMs: at(1),
    peakMib,
    left: await left(),
  }
  const file = process.env[ATTACK_FIGURES_VARIABLE]
  if (file !== undefined) appendFileSync(file, `${JSON.stringify(figures)}\n`)
  return { result, figures }
}
