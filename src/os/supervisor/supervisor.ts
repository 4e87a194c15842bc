export interface ExitRecord {
  readonly pid: number
  /** Exit code, or 128 + signal. */
  readonly exitCode: number
  readonly signal: number | undefined
  /** CLOCK_BOOTTIME when it was reaped. */
  readonly reapedAtNs: bigint
  readonly userTimeUs: bigint
  readonly systemTimeUs: bigint
  readonly maxRssKib: bigint
}

/** Exits of processes that are not our children, as reported by vminit. */
export interface Exits {
  /** undefined when usable, else the sentence that container calls answer with (not run below vminit …). */
  readonly unavailable: string | undefined
  /** Begins to listen: take it before the program that starts the process is started. */
  watch(): ExitWatch
}

export interface ExitWatch {
  /**
   * The exit of `pid`, if reaped after this watch began; may be called before or after it happened. When vminit
   * had to drop the record, the exit code is 255. Rejects when the watch is closed or vminit is gone.
   */
  exitOf(pid: number): Promise<ExitRecord>
  /** Frees the watch. A pending `exitOf` stays valid. Call it as soon as the pid was claimed or none will be. */
  close(): void
}

/** What vminit, which started this agent, asks of it and does for it. */
export interface Supervisor {
  /** Resolves when the agent shall stop in good order: with a signal's number, or 0 when vminit is gone. */
  readonly shutdownRequested: Promise<number>
  /** Powers the virtual machine off, or ends the wrapper with 0 when it is no virtual machine. */
  powerOff(): Promise<void>
  /** Ends the wrapper with `status`; in a virtual machine it powers off. */
  exitWith(status: number): Promise<void>
}
