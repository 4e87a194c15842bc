import { setTimeout as sleep } from 'node:timers/promises'
import { errnoOf } from '../../../src/base/errors.ts'
import type { AgentProcess } from '../host/agent-process.ts'
import type { Random } from './random.ts'

/** Limits the agents in a row that die before they serve; the sixth would end vminit. */
const MOST_UNSERVED = 3

/**
 * After this many kills without progress the killing pauses: work that takes longer than the time between two deaths would
 * otherwise never end.
 */
const MOST_WITHOUT_PROGRESS = 20

export class Killer {
  kills = 0
  #recent = 0
  readonly #started: AgentProcess
  readonly #random: Random
  readonly #mostMs: number
  readonly #stopping = new AbortController()
  #unserved = 0
  /** The number of log lines read; `#agents` counts the boots in them. */
  #read = 0
  #agents = 0
  readonly #ended: Promise<void>

  /** Two deaths are at most `mostMs` apart; more where an agent must serve first. */
  constructor(started: AgentProcess, random: Random, mostMs = 400) {
    this.#started = started
    this.#random = random
    this.#mostMs = mostMs
    this.#ended = this.#run()
    this.#ended.catch(() => {})
  }

  /** Resolves with the number of kills when no more follow. */
  async stop(): Promise<number> {
    this.#stopping.abort()
    await this.#ended
    return this.kills
  }

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
      // Most agents serve before the next kill; some die while they restore.
      const mayDieEarly = this.#unserved < MOST_UNSERVED && this.#random() < 0.3
      this.#unserved = mayDieEarly ? this.#unserved + 1 : 0
      while (!mayDieEarly && this.#booted() === booted && !signal.aborted) await sleep(5)
    }
  }

  #booted(): number {
    const { log } = this.#started
    for (; this.#read < log.length; this.#read++) if (log[this.#read]?.msg === 'booted') this.#agents += 1
    return this.#agents
  }

  /** Returns undefined between two agents. */
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
