import { AgentError } from '../../base/errors.ts'
import type { ExitRecord, ExitWatch } from './supervisor.ts'

interface Waiter {
  readonly pid: number
  readonly sinceNs: bigint
  /** A time after the process began. A process of this pid that began later is another one. */
  readonly askedAtNs: bigint
  readonly answer: PromiseWithResolvers<ExitRecord>
}

/**
 * Matches exit records to waits. A record answers every wait for its pid whose watch began before the process was
 * reaped. Without a wait, it is kept while an open watch could ask for it, because a process can end before its pid is
 * known.
 */
export class ExitLedger {
  readonly #now: () => bigint
  readonly #watches = new Set<{ readonly sinceNs: bigint }>()
  readonly #waiters = new Set<Waiter>()
  /** By pid, at most two: the first and the last. */
  readonly #unmatched = new Map<number, readonly ExitRecord[]>()
  #failure: AgentError | undefined

  /** `now` is CLOCK_BOOTTIME, the clock of the records. */
  constructor(now: () => bigint) {
    this.#now = now
  }

  /** `sinceNs` may be in the past only for the first watch. */
  watch(sinceNs = this.#now()): ExitWatch {
    const watch = { sinceNs }
    this.#watches.add(watch)
    return {
      exitOf: async (pid) => {
        if (this.#failure !== undefined) throw this.#failure
        if (!this.#watches.has(watch)) throw new AgentError('INTERNAL', `exit watch for pid ${pid}: closed`)
        // The last one, because an earlier process of this pid may have ended since the watch began.
        const known = this.#recordsSince(pid, sinceNs).at(-1)
        return await this.#take(known, { pid, sinceNs, askedAtNs: this.#now() })
      },
      hasEnded: (pid) => this.#recordsSince(pid, sinceNs).length > 0,
      close: () => {
        this.#watches.delete(watch)
        this.#forgetUnneeded()
      },
    }
  }

  async exitOfProcess(pid: number, startNs: bigint): Promise<ExitRecord> {
    if (this.#failure !== undefined) throw this.#failure
    const [known] = this.#recordsSince(pid, startNs)
    return await this.#take(known, { pid, sinceNs: startNs, askedAtNs: startNs })
  }

  /** The earliest time that an open watch can ask for; undefined when none is open. */
  get neededSinceNs(): bigint | undefined {
    // A Set keeps the order of the begins.
    const [first] = this.#watches
    return first?.sinceNs
  }

  /** vminit may send a record again. */
  record(exit: ExitRecord): void {
    const matching = [...this.#waiters].filter(
      ({ pid, sinceNs }) => pid === exit.pid && sinceNs <= exit.reapedAtNs,
    )
    for (const waiter of matching) this.#settle(waiter, exit)
    if (matching.length > 0 || !this.#isNeeded(exit)) return
    const [first] = this.#unmatched.get(exit.pid) ?? []
    this.#unmatched.set(exit.pid, first === undefined ? [exit] : [first, exit])
  }

  waitedFor(): readonly { readonly pid: number; readonly askedAtNs: bigint }[] {
    return [...this.#waiters]
  }

  /** Answers waits for `pid` since `askedAtNs` or earlier with exit code 255. */
  lost(pid: number, askedAtNs: bigint): void {
    const exit = lostRecord(pid, this.#now())
    for (const waiter of [...this.#waiters]) {
      if (waiter.pid === pid && waiter.askedAtNs <= askedAtNs) this.#settle(waiter, exit)
    }
  }

  /** Rejects every pending and future wait. */
  fail(error: AgentError): void {
    this.#failure = error
    for (const waiter of this.#waiters) waiter.answer.reject(error)
    this.#waiters.clear()
    this.#unmatched.clear()
  }

  #take(known: ExitRecord | undefined, wait: Omit<Waiter, 'answer'>): Promise<ExitRecord> {
    if (known !== undefined) {
      this.#unmatched.delete(wait.pid)
      return Promise.resolve(known)
    }
    const waiter = { ...wait, answer: Promise.withResolvers<ExitRecord>() }
    this.#waiters.add(waiter)
    return waiter.answer.promise
  }

  #recordsSince(pid: number, sinceNs: bigint): readonly ExitRecord[] {
    return (this.#unmatched.get(pid) ?? []).filter(({ reapedAtNs }) => sinceNs <= reapedAtNs)
  }

  #settle(waiter: Waiter, exit: ExitRecord): void {
    this.#waiters.delete(waiter)
    waiter.answer.resolve(exit)
  }

  #forgetUnneeded(): void {
    for (const [pid, exits] of this.#unmatched) {
      if (!exits.some((exit) => this.#isNeeded(exit))) this.#unmatched.delete(pid)
    }
  }

  #isNeeded(exit: ExitRecord): boolean {
    const sinceNs = this.neededSinceNs
    return sinceNs !== undefined && sinceNs <= exit.reapedAtNs
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
