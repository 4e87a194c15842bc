import type { Fd } from '../streams/streams.ts'

export interface ExitRecord {
  readonly pid: number
  /** Exit code, or 128 + signal. */
  readonly exitCode: number
  readonly signal: number | undefined
  /** Nanoseconds of CLOCK_BOOTTIME. */
  readonly reapedAtNs: bigint
  readonly userTimeUs: bigint
  readonly systemTimeUs: bigint
  readonly maxRssKib: bigint
}

/** Exits of processes that are not children of the agent, as reported by vminit. */
export interface Exits {
  /** Call it before the start of the program that starts the process. */
  watch(): ExitWatch
  /** Makes vminit keep the exit for later agents, if it still runs. Call it while the process's watch is open. */
  keep(pid: number): void
  /** Makes vminit drop an exit that was kept or adopted. */
  forget(pid: number): void
  /**
   * Waits for the exit of a process of the previous agent, which began at `startNs` of CLOCK_BOOTTIME, and makes vminit
   * keep it. The exit code is 255 when vminit has no record. To be called before {@link Supervisor.gateOpened}. Rejects
   * when vminit is gone.
   */
  adopt(pid: number, startNs: bigint): Promise<ExitRecord>
}

export interface ExitWatch {
  /**
   * Waits for the exit of `pid`, reaped after the watch began. The exit code is 255 when vminit lost the record.
   * Rejects when the watch is closed or vminit is gone.
   */
  exitOf(pid: number): Promise<ExitRecord>
  /** Whether the exit was reported since the watch began. Ask before `exitOf`, whose promise resolves later. */
  hasEnded(pid: number): boolean
  /** Ends the watch; a pending `exitOf` stays valid. Call it after `exitOf`, or when no pid will come. */
  close(): void
}

/** Descriptors that vminit keeps open for later agents. */
export interface DescriptorStore {
  /** Returns an inherited descriptor once, else undefined. The caller owns it; vminit keeps its own. */
  take(name: string): Fd | undefined
  /** Makes {@link DescriptorStore.take} return a descriptor that is stored under this name. */
  handOver(name: string, fd: Fd): void
  /** The names that were not taken. */
  names(): readonly string[]
  /**
   * Passes a descriptor on, under a name of at most 31 letters a-z, digits and `-`. It survives the agent once this
   * returns. Throws INTERNAL when vminit is gone. Rejects with RESOURCE_EXHAUSTED or INTERNAL when vminit refuses it,
   * which need not be handled.
   */
  store(name: string, fd: Fd): Promise<void>
  /** Resolves when vminit has closed its descriptor, or has none. Throws INTERNAL when vminit is gone. */
  remove(name: string): Promise<void>
}

export interface Supervisor {
  /** Resolves when the agent must stop in order: with a signal's number, or 0 when vminit is gone. */
  readonly shutdownRequested: Promise<number>
  /** Powers the virtual machine off; outside one, ends vminit with status 0. */
  powerOff(): Promise<void>
  /** Ends vminit with `status`; in a virtual machine, powers it off. */
  exitWith(status: number): Promise<void>
  /** vminit ends with this agent: it powers the virtual machine off, or exits with status 3. */
  endWithAgent(): Promise<void>
  /** Resets vminit's restart limit, because the agent serves. Drops kept exits that were not adopted. */
  gateOpened(): void
  /** Makes vminit ping the connection broker, and kill it when it does not answer. */
  checkBroker(): void
}
