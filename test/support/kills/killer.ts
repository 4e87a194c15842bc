import { setTimeout as sleep } from 'node:timers/promises'
import { errnoOf } from '../../../src/base/errors.ts'
import type { AgentProcess } from '../host/agent-process.ts'
import type { Random } from './random.ts'

/** How many agents in a row may die before they serve; the sixth would end vminit. */
const MOST_UNSERVED = 3

/**
 * After so many kills without progress the agent lives until there is some: on a slow machine, work that needs longer than
 * two deaths are apart would otherwise never end.
 */
const MOST_WITHOUT_PROGRESS = 20

/** Kills the agent at random moments until it is stopped. */
export class Killer {
  kills = 0
  /** Kills since the last progress. */
  #recent = 0
  readonly #started: AgentProcess
  readonly #random: Random
  readonly #mostMs: number
  readonly #stopping = new AbortController()
  #unserved = 0
  /** So many lines of the log were read, and so many agents booted in them. */
  #read = 0
  #agents = 0
  readonly #ended: Promise<void>

  /** Two deaths are at most `mostMs` apart; more where an agent must serve first. */
  constructor(started: AgentProcess, random: Random, mostMs = 400) {
    this.#started = started
    this.#random = random
    this.#mostMs = mostMs
    this.#ended = this.#run()
    // It is awaited by stop().
    this.#ended.catch(() => {})
  }

  /** Resolves when no more kill follows, with their number. */
  async stop(): Promise<number> {
    this.#stopping.abort()
    await this.#ended
    return this.kills
  }

  /** Tells that a part of the work has ended. */
  progressed(): void {
    this.#recent = 0
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await sleep(this.#random() * this.#mostMs, undefined, { signal }).catch(() => {})
      if (signal.aborted) return
      if (this.#recent >= MOST_WITHOUT_PROGRESS) continue
      const pid = this.#agentPid()
      if (pid === undefined) continue
      const booted = this.#booted()
      if (!endByKill(pid)) continue
      this.kills += 1
      this.#recent += 1
      // Most agents serve before the next kill; some die in their restoration.
      const mayDieEarly = this.#unserved < MOST_UNSERVED && this.#random() < 0.3
      this.#unserved = mayDieEarly ? this.#unserved + 1 : 0
      while (!mayDieEarly && this.#booted() === booted && !signal.aborted) await sleep(5)
    }
  }

  /** The number of agents that have booted. */
  #booted(): number {
    const { log } = this.#started
    for (; this.#read < log.length; this.#read++) if (log[this.#read]?.msg === 'booted') this.#agents += 1
    return this.#agents
  }

  /** undefined between two agents. */
  #agentPid(): number | undefined {
    try {
      return this.#started.agentPid()
    } catch {
      return undefined
    }
  }
}

function endByKill(pid: number): boolean {
  try {
    process.kill(pid, 'SIGKILL')
    return true
  } catch (error) {
    if (errnoOf(error) === 'ESRCH') return false
    throw error
  }
}
