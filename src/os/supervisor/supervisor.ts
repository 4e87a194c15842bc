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
  /** If the process still runs, makes vminit keep its exit for later agents. Call it while the watch is open. */
  keep(pid: number): void
  /** Makes vminit drop an exit that was kept or adopted. */
  forget(pid: number): void
  /**
   * Waits for the exit of a process that the previous agent started and that began at `startNs` of CLOCK_BOOTTIME; vminit
   * keeps the exit. The exit code is 255 when vminit has no record. To be called before {@link Supervisor.gateOpened}. Rejects
   * when vminit is gone.
   */
  adopt(pid: number, startNs: bigint): Promise<ExitRecord>
}

export interface ExitWatch {
  /**
   * Waits for the exit of `pid`, reaped after the watch began. The exit code is 255 when vminit lost the record.
   * Rejects after `close`, or when vminit is gone.
   */
  exitOf(pid: number): Promise<ExitRecord>
  /** Whether the exit was reported since the watch began. Ask before `exitOf`, which takes the record away. */
  hasEnded(pid: number): boolean
  /** Ends the watch once `exitOf` was called, which may still be pending, or when no process was started. */
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
   * returns. Throws INTERNAL when it cannot be sent. The promise may be ignored: it rejects when the store is full
   * (RESOURCE_EXHAUSTED), on a refusal (INTERNAL), or when vminit is gone (FAILED_PRECONDITION).
   */
  store(name: string, fd: Fd): Promise<void>
  /** Like `store` for up to three descriptors, without an answer. Throws RESOURCE_EXHAUSTED when the store is full. */
  storeAll(descriptors: Readonly<Record<string, Fd>>): void
  /** Resolves when vminit has closed its descriptors, or had none. Rejects when vminit is gone. */
  remove(...names: readonly string[]): Promise<void>
  /** It does what `remove` does, but nobody waits for its end. */
  drop(...names: readonly string[]): void
}

export interface Supervisor {
  /** Resolves when the agent must stop: with the number of vminit's signal, or 0 when vminit is gone. */
  readonly shutdownRequested: Promise<number>
  /** Powers the virtual machine off; outside of one, vminit ignores it. */
  powerOff(): Promise<void>
  /** vminit ends with this agent: it powers the virtual machine off, or exits with status 3. */
  endWithAgent(): Promise<void>
  /** Resets vminit's restart limit, because the agent serves. Drops kept exits that were not adopted. */
  gateOpened(): void
  /** Makes vminit ping the connection broker, and kill it when it does not answer. */
  checkBroker(): void
}

/** The outcome of a thaw. Names are those of `Freezer.holdFileSystem`. */
export interface Thawed {
  /** Still frozen: their disks have not answered. */
  readonly late: readonly string[]
  /** Another program has thawed them before (EINVAL), or the disk failed. */
  readonly failed: readonly { readonly name: string; readonly errno: string }[]
}

/**
 * Freezes by vminit, which thaws without the agent: after the bound, when the agent or the broker ends, and before a
 * power-off. Names are those of `DescriptorStore`. Failures are errors of the kernel.
 */
export interface Freezer {
  /** Gives vminit what it will thaw by. ENOENT when another mount hides the mount point; EBUSY while something is frozen. */
  holdFileSystem(name: string, mount: { readonly id: number; readonly mountPoint: string }): Promise<void>
  holdCgroup(name: string, freezeFile: string): Promise<void>
  /** Everything is thawed after `boundMs`. Called again, the time begins anew; ECANCELED once everything is being thawed. */
  arm(boundMs: number): Promise<void>
  /** Freezes a held file system; waits for its disk. EBUSY: another program has frozen it. ECANCELED: it is thawed. */
  freeze(name: string): Promise<void>
  /** Writes a held freeze file. ECANCELED: it is thawed. */
  freezeCgroup(name: string): Promise<void>
  /** File systems in the reverse order of their holds, then cgroups. Does not wait longer than `signal`; never throws it. */
  thaw(what: 'all' | 'file systems', signal: AbortSignal): Promise<Thawed>
  /** Sets what is called when nothing is frozen any more. */
  onThawed(thawed: () => void): void
}
