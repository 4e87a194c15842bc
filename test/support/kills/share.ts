import { appendFileSync, writeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEFAULT_SHARE, KILLS, type KillsFigures, type KillsShare } from '../../../scripts/test/kills-run.ts'
import type { AgentProcess } from '../host/agent-process.ts'
import { type Random, randomFrom } from './random.ts'

/** The length of these tests depends on the command line; each of their runs has its own limit (`oneRun`). */
export const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000

/** The limit of one run with at most `MOST_WITHOUT_PROGRESS` deaths, also on a busy machine. */
const ONE_RUN_MS = 300_000

/** Waits for one run. When it fails or takes too long, throws an error with its name and the end of the agent's log. */
export async function oneRun<T>(
  what: string,
  { log }: Pick<AgentProcess, 'log'>,
  run: Promise<T>,
): Promise<T> {
  const ended = new AbortController()
  const tooLong = sleep(ONE_RUN_MS, undefined, { signal: ended.signal }).then(() => {
    throw new Error(`not ended after ${ONE_RUN_MS / 1000} s`)
  })
  // The loser of the race may still fail.
  for (const promise of [run, tooLong]) promise.catch(() => {})
  try {
    return await Promise.race([run, tooLong])
  } catch (error) {
    const text = `${what}: ${error instanceof Error ? error.message : error}`
    throw new Error(`${text}\n${warningsIn(log.slice(-1000))}`, { cause: error })
  } finally {
    ended.abort()
  }
}

/** The last 100 warnings of an agent, without those about its restarts. */
export function warningsIn(log: AgentProcess['log']): string {
  const told = log.filter(({ level, msg }) => level !== 'INFO' && msg !== 'agent restarted: sandbox restored')
  return told
    .slice(-100)
    .map((line) => JSON.stringify(line))
    .join('\n')
}

export function shareOf(part: keyof KillsShare): number {
  return Number(process.env[KILLS[part]] ?? DEFAULT_SHARE[part])
}

export function randomOf(test: string): Random {
  const seed = Number(process.env[KILLS.seed] ?? Math.floor(Math.random() * 0x7fffffff))
  return randomFrom([...test].reduce((mixed, letter) => Math.imul(mixed, 31) + letter.charCodeAt(0), seed))
}

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
    // Bypasses vitest, which holds a test's output until its end.
    writeSync(1, `${this.#what}: ${this.runs} runs, ${this.kills} kills, ${seconds} s\n`)
  }

  failed(text: string): void {
    if (Number.isFinite(this.#everyMs)) writeSync(1, `FAIL ${this.#what}: ${text}\n`)
  }

  end(): void {
    const file = process.env[KILLS.figures]
    if (file === undefined) return
    const seconds = (performance.now() - this.#begin) / 1000
    const figures: KillsFigures = { what: this.#what, runs: this.runs, kills: this.kills, seconds }
    appendFileSync(file, `${JSON.stringify(figures)}\n`)
  }
}
