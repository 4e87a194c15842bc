import { AgentError } from '../../base/errors.ts'
import type { ExitRecord, ExitWatch } from './supervisor.ts'

interface Waiter {
  readonly pid: number
  readonly sinceNs: bigint
  /** When `exitOf` was called. A process of this pid that began later is another one. */
  readonly askedAtNs: bigint
  readonly answer: PromiseWithResolvers<ExitRecord>
}

/**
 * Matches exit records to the waits for them. A record answers every wait for its pid whose watch began before the process
 * was reaped. A record without a wait is kept while an open watch could still ask for it, because a process can end before
 * its pid is known; only the last record of a pid is kept.
 */
export class ExitLedger {
  readonly #now: () => bigint
  readonly #watches = new Set<{ readonly sinceNs: bigint }>()
  readonly #waiters = new Set<Waiter>()
  readonly #unmatched = new Map<number, ExitRecord>()
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
        if (!this.#watches.has(watch)) throw new AgentError('INTERNAL', `exit watch for pid ${pid}: closed`)
        return await this.#take(pid, watch.sinceNs)
      },
      hasEnded: (pid) => this.#recordSince(pid, watch.sinceNs) !== undefined,
      close: () => {
        this.#watches.delete(watch)
        this.#forgetUnneeded()
      },
    }
  }

  /** Takes the record of a reaped process. */
  record(exit: ExitRecord): void {
    const matching = [...this.#waiters].filter(
      ({ pid, sinceNs }) => pid === exit.pid && sinceNs <= exit.reapedAtNs,
    )
    for (const waiter of matching) this.#settle(waiter, exit)
    if (matching.length === 0 && this.#isNeeded(exit)) this.#unmatched.set(exit.pid, exit)
  }

  /** The pids that are waited for, each with the time of the request. */
  waitedFor(): readonly { readonly pid: number; readonly askedAtNs: bigint }[] {
    return [...this.#waiters]
  }

  /** Answers the waits for `pid` that began at or before `askedAtNs` with exit code 255, because its record is lost. */
  lost(pid: number, askedAtNs: bigint): void {
    const exit = lostRecord(pid, this.#now())
    for (const waiter of [...this.#waiters]) {
      if (waiter.pid === pid && waiter.askedAtNs <= askedAtNs) this.#settle(waiter, exit)
    }
  }

  /** Rejects every pending and future wait, because no more records will come. */
  fail(error: AgentError): void {
    this.#failure = error
    for (const waiter of this.#waiters) waiter.answer.reject(error)
    this.#waiters.clear()
    this.#unmatched.clear()
  }

  #take(pid: number, sinceNs: bigint): Promise<ExitRecord> {
    const known = this.#recordSince(pid, sinceNs)
    if (known !== undefined) {
      this.#unmatched.delete(pid)
      return Promise.resolve(known)
    }
    const waiter = { pid, sinceNs, askedAtNs: this.#now(), answer: Promise.withResolvers<ExitRecord>() }
    this.#waiters.add(waiter)
    return waiter.answer.promise
  }

  #recordSince(pid: number, sinceNs: bigint): ExitRecord | undefined {
    const known = this.#unmatched.get(pid)
    return known !== undefined && sinceNs <= known.reapedAtNs ? known : undefined
  }

  #settle(waiter: Waiter, exit: ExitRecord): void {
    this.#waiters.delete(waiter)
    waiter.answer.resolve(exit)
  }

  #forgetUnneeded(): void {
    for (const exit of this.#unmatched.values()) {
      if (!this.#isNeeded(exit)) this.#unmatched.delete(exit.pid)
    }
  }

  #isNeeded(exit: ExitRecord): boolean {
    return [...this.#watches].some(({ sinceNs }) => sinceNs <= exit.reapedAtNs)
  }
}

/** A record with exit code 255, which container engines report for an unknown status. */
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
