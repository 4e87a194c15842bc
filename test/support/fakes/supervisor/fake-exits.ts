import { AgentError } from '../../../../src/base/errors.ts'
import type { Clock } from '../../../../src/os/clock.ts'
import { ExitLedger } from '../../../../src/os/supervisor/exit-ledger.ts'
import type { ExitRecord, Exits, ExitWatch, Supervisor } from '../../../../src/os/supervisor/supervisor.ts'

/** Exit records that the test makes with {@link exit}. The real ledger matches them to waits. */
export class FakeExits implements Exits {
  openWatches = 0
  readonly kept = new Set<number>()
  readonly #clock: Clock
  readonly #ledger: ExitLedger

  constructor(clock: Clock) {
    this.#clock = clock
    this.#ledger = new ExitLedger(() => clock.boottimeNs())
  }

  watch(): ExitWatch {
    const watch = this.#ledger.watch()
    let open = true
    this.openWatches += 1
    return {
      exitOf: (pid) => watch.exitOf(pid),
      hasEnded: (pid) => watch.hasEnded(pid),
      close: () => {
        if (open) this.openWatches -= 1
        open = false
        watch.close()
      },
    }
  }

  keep(pid: number): void {
    this.kept.add(pid)
  }

  forget(pid: number): void {
    this.kept.delete(pid)
  }

  adopt(pid: number, startNs: bigint): Promise<ExitRecord> {
    this.kept.add(pid)
    return this.#ledger.exitOfProcess(pid, startNs)
  }

  /** Reports the exit of a process that was reaped now. */
  exit(pid: number, how: { readonly code: number } | { readonly signal: number }): void {
    const signal = 'signal' in how ? how.signal : undefined
    this.#ledger.record({
      pid,
      exitCode: 'code' in how ? how.code : 128 + how.signal,
      signal,
      reapedAtNs: this.#clock.boottimeNs(),
      userTimeUs: 1000n,
      systemTimeUs: 500n,
      maxRssKib: 1024n,
    })
  }
}

const MOST_RESTARTS = 5

/** vminit outside of a virtual machine, where it ignores a power-off. */
export class FakeSupervisor implements Supervisor {
  readonly #shutdown = Promise.withResolvers<number>()
  readonly shutdownRequested = this.#shutdown.promise
  #isGone = false
  #endsWithAgent = false
  #restarts = 0

  requestShutdown(signal: number): void {
    this.#shutdown.resolve(signal)
  }

  /** Ends vminit before the agent. */
  kill(): void {
    this.#isGone = true
    this.#shutdown.resolve(0)
  }

  /** Ends the agent. Returns the status of vminit when it ends too, undefined when it starts the next agent. */
  agentEnds(exitCode: number): number | undefined {
    if (exitCode === 0) return 0
    if (this.#endsWithAgent) return 3
    if (exitCode === 2) return 2
    if (this.#restarts === MOST_RESTARTS) return exitCode
    this.#restarts += 1
    return undefined
  }

  async powerOff(): Promise<void> {
    this.#checkGone()
  }

  async endWithAgent(): Promise<void> {
    this.#checkGone()
    this.#endsWithAgent = true
  }

  checkBroker(): void {}

  gateOpened(): void {
    // The end of this agent does not count.
    this.#restarts = -1
  }

  #checkGone(): void {
    if (this.#isGone) throw new AgentError('FAILED_PRECONDITION', 'vminit is gone')
  }
}
