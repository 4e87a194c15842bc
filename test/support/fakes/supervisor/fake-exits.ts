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

export class FakeSupervisor implements Supervisor {
  readonly commands: string[] = []
  readonly #shutdown = Promise.withResolvers<number>()
  readonly shutdownRequested = this.#shutdown.promise

  requestShutdown(signal: number): void {
    this.#shutdown.resolve(signal)
  }

  async powerOff(): Promise<void> {
    this.commands.push('power off')
  }

  async endWithAgent(): Promise<void> {
    this.commands.push('end with the agent')
  }

  checkBroker(): void {}

  gateOpened(): void {
    this.commands.push('gate opened')
  }

  async exitWith(status: number): Promise<void> {
    this.commands.push(`exit with ${status}`)
  }
}
