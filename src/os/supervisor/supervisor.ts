import type { Fd } from '../streams/streams.ts'

/** The end of a process. */
export interface ExitRecord {
  readonly pid: number
  /** Exit code, or 128 + signal. */
  readonly exitCode: number
  readonly signal: number | undefined
  /** When it was reaped, in nanoseconds of CLOCK_BOOTTIME. */
  readonly reapedAtNs: bigint
  readonly userTimeUs: bigint
  readonly systemTimeUs: bigint
  readonly maxRssKib: bigint
}

/** Exits of processes that are not children of the agent, as reported by vminit. */
export interface Exits {
  /** Begins to watch for exits. Call it before starting the program that starts the process. */
  watch(): ExitWatch
  /**
   * Has vminit keep the exit of a process for the agents after this one, until {@link Exits.forget}. Call it while the
   * watch is open that the process was started under. Does nothing once vminit is gone.
   */
  keep(pid: number): void
  /** Has vminit drop the exit of a process that was kept or adopted. */
  forget(pid: number): void
  /**
   * Waits for the exit of a process of the previous agent, and has vminit keep it: reaped at or after `startNs`, the
   * process's own start in CLOCK_BOOTTIME. The exit code is 255 when the process is gone and vminit has no record. To
   * be called before {@link Supervisor.gateOpened}, which drops what is left of those agents. Rejects when vminit is
   * gone.
   */
  adopt(pid: number, startNs: bigint): Promise<ExitRecord>
}

/** A watch for exits since a moment. */
export interface ExitWatch {
  /**
   * Waits for the exit of `pid`, reaped after this watch began, even if it has already happened. The exit code is 255 when
   * vminit lost the record. Rejects when the watch is closed or vminit is gone.
   */
  exitOf(pid: number): Promise<ExitRecord>
  /**
   * Whether the exit of `pid` has been reported since this watch began. To be asked before `exitOf`, whose promise tells
   * only in a later microtask.
   */
  hasEnded(pid: number): boolean
  /** Ends the watch; a pending `exitOf` stays valid. Call it after `exitOf`, or when no pid will come. */
  close(): void
}

/** The descriptors that vminit keeps open for the agents after this one. */
export interface DescriptorStore {
  /**
   * Removes the descriptor of this name from those that this agent has inherited, and returns it; the caller owns it,
   * and vminit still has its own. undefined when there is none.
   */
  take(name: string): Fd | undefined
  /** Lets {@link DescriptorStore.take} return a descriptor, which is stored under this name. */
  handOver(name: string, fd: Fd): void
  /** The names of those that were not taken. */
  names(): readonly string[]
  /**
   * Passes a descriptor on, under a name of at most 31 letters a-z, digits and `-`. Once this returns it survives the
   * agent, unless vminit refuses it. Throws INTERNAL at once when vminit is gone. Resolves when vminit has accepted it;
   * rejects with RESOURCE_EXHAUSTED or INTERNAL when not, which need not be handled.
   */
  store(name: string, fd: Fd): Promise<void>
  /**
   * Resolves when vminit has closed its descriptor of this name, or has none. Throws INTERNAL when vminit is gone.
   */
  remove(name: string): Promise<void>
}

/** The requests of vminit, which started this agent, and the commands to it. */
export interface Supervisor {
  /** Resolves when the agent is to stop in good order: with a signal's number, or with 0 when vminit is gone. */
  readonly shutdownRequested: Promise<number>
  /** Powers the virtual machine off; outside one, ends vminit with status 0. */
  powerOff(): Promise<void>
  /** Ends vminit with `status`; in a virtual machine, powers it off. */
  exitWith(status: number): Promise<void>
  /**
   * From now on vminit does not restart this agent when it dies: it powers the virtual machine off, or exits with status 3.
   */
  endWithAgent(): Promise<void>
  /**
   * The agent serves: its death does not count towards the restarts after which vminit gives up. What vminit has kept for
   * this agent and was not adopted is dropped.
   */
  gateOpened(): void
  /** Has vminit ask the connection broker for a sign of life, and kill it when it gives none. */
  checkBroker(): void
}
