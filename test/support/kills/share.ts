import { appendFileSync, writeSync } from 'node:fs'
import { DEFAULT_SHARE, KILLS, type KillsFigures, type KillsShare } from '../../../scripts/test/kills-run.ts'
import { type Random, randomFrom } from './random.ts'

/** A test of many runs that may take as long as it is asked to. */
export const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000

/** How much of a part this run is to do. */
export function shareOf(part: keyof KillsShare): number {
  return Number(process.env[KILLS[part]] ?? DEFAULT_SHARE[part])
}

/** The random numbers of a test; they follow from the seed of the run. */
export function randomOf(test: string): Random {
  const seed = Number(process.env[KILLS.seed] ?? Math.floor(Math.random() * 0x7fffffff))
  return randomFrom([...test].reduce((mixed, letter) => Math.imul(mixed, 31) + letter.charCodeAt(0), seed))
}

/** The figures of one test, told now and then, and at its end. */
export class Tally {
  runs = 0
  kills = 0
  readonly #what: string
  readonly #begin = performance.now()
  readonly #everyMs = Number(process.env[KILLS.progressSeconds] ?? Number.POSITIVE_INFINITY) * 1000
  #toldAt = performance.now()

  constructor(what: string) {
    this.#what = what
  }

  add(kills: number): void {
    this.runs += 1
    this.kills += kills
    if (performance.now() - this.#toldAt < this.#everyMs) return
    this.#toldAt = performance.now()
    const seconds = ((performance.now() - this.#begin) / 1000).toFixed(0)
    // Past vitest, which holds what a test prints until its end.
    writeSync(1, `${this.#what}: ${this.runs} runs, ${this.kills} kills, ${seconds} s\n`)
  }

  end(): void {
    const file = process.env[KILLS.figures]
    if (file === undefined) return
    const seconds = (performance.now() - this.#begin) / 1000
    const figures: KillsFigures = { what: this.#what, runs: this.runs, kills: this.kills, seconds }
    appendFileSync(file, `${JSON.stringify(figures)}\n`)
  }
}
