import { AgentError } from '../../base/errors.ts'
import type { ExitRecord, ExitWatch } from './supervisor.ts'

interface Waiter {
  readonly pid: number
  readonly sinceNs: bigint
  /** When `exitOf` was called: a process of this pid that began later is another one. */
  readonly askedAtNs: bigint
  readonly answer: PromiseWithResolvers<ExitRecord>
}

/**
 * Brings exit records and those who wait for them together. A record answers everybody who waits for its pid since
 * before it was reaped. One that nobody waits for yet is kept while a watch is open that could still ask for it, for a
 * process can be gone before its pid is known; of several with one pid the last is kept.
 */
export class ExitLedger {
  readonly #now: () => bigint
  readonly #watches = new Set<{ readonly sinceNs: bigint }>()
  readonly #waiters = new Set<Waiter>()
  readonly #unclaimed = new Map<number, ExitRecord>()
  #failure: AgentError | undefined

  /** `now` is CLOCK_BOOTTIME, the clock of the records. */
  constructor(now: () => bigint) {
    this.#now = now
  }

  watch(): ExitWatch {
    const watch = { sinceNs: this.#now() }
    this.#watches.add(watch)
    return {
      exitOf: async (pid) => {
        if (this.#failure !== undefined) throw this.#failure
        if (!this.#watches.has(watch))
          throw new AgentError('INTERNAL', `the exit watch for pid ${pid} is closed`)
        return await this.#claim(pid, watch.sinceNs)
      },
      close: () => {
        this.#watches.delete(watch)
        this.#forgetUnclaimable()
      },
    }
  }

  /** A process was reaped. */
  record(exit: ExitRecord): void {
    const matching = [...this.#waiters].filter(
      ({ pid, sinceNs }) => pid === exit.pid && sinceNs <= exit.reapedAtNs,
    )
    for (const waiter of matching) this.#settle(waiter, exit)
    if (matching.length === 0 && this.#isClaimable(exit)) this.#unclaimed.set(exit.pid, exit)
  }

  /** Who is waited for, each with the moment it was asked for. */
  waitedFor(): readonly { readonly pid: number; readonly askedAtNs: bigint }[] {
    return [...this.#waiters]
  }

  /** Answers those who asked for `pid` at or before `askedAtNs` with a code of 255: its record will not come. */
  lost(pid: number, askedAtNs: bigint): void {
    const exit = lostRecord(pid, this.#now())
    for (const waiter of [...this.#waiters]) {
      if (waiter.pid === pid && waiter.askedAtNs <= askedAtNs) this.#settle(waiter, exit)
    }
  }

  /** No record will ever come again: every wait, pending and future, is rejected. */
  fail(error: AgentError): void {
    this.#failure = error
    for (const waiter of this.#waiters) waiter.answer.reject(error)
    this.#waiters.clear()
    this.#unclaimed.clear()
  }

  #claim(pid: number, sinceNs: bigint): Promise<ExitRecord> {
    const known = this.#unclaimed.get(pid)
    if (known !== undefined && sinceNs <= known.reapedAtNs) {
      this.#unclaimed.delete(pid)
      return Promise.resolve(known)
    }
    const waiter = { pid, sinceNs, askedAtNs: this.#now(), answer: Promise.withResolvers<ExitRecord>() }
    this.#waiters.add(waiter)
    return waiter.answer.promise
  }

  #settle(waiter: Waiter, exit: ExitRecord): void {
    this.#waiters.delete(waiter)
    waiter.answer.resolve(exit)
  }

  #forgetUnclaimable(): void {
    for (const exit of this.#unclaimed.values()) {
      if (!this.#isClaimable(exit)) this.#unclaimed.delete(exit.pid)
    }
  }

  #isClaimable(exit: ExitRecord): boolean {
    return [...this.#watches].some(({ sinceNs }) => sinceNs <= exit.reapedAtNs)
  }
}

/** 255 is what container engines report for a status that nobody knows. */
function lostRecord(pid: number, nowNs: bigint): ExitRecord {
  return {
    pid,
    exitCode: 255,
    signal: undefined,
    reapedAtNs: nowNs,
    userTimeUs: 0n,
    systemTimeUs: 0n,
    maxRssKib: 0n,
  }
}
