import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { addEntropy } from '../devices/entropy.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'

/** The agent's own process, and global settings of the machine. */
export interface System {
  /** kill(2); signal 0 only checks. Throws ESRCH when no such process exists. */
  signal(pid: number, signal: number): void
  /** setrlimit(RLIMIT_NOFILE) of this process, soft and hard; EPERM above `/proc/sys/fs/nr_open`. */
  setOpenFileLimit(limit: number): void
  /** setpriority(2) of all threads of this process. Programs that it starts do not inherit a value below 0. */
  setNice(nice: number): void
  /**
   * Keeps the pages of the program and its libraries in memory that are used from now on (mlock2(2), MLOCK_ONFAULT); the
   * kernel may drop those that only the start has used. EPERM or ENOMEM above RLIMIT_MEMLOCK without CAP_IPC_LOCK.
   */
  lockMappedFiles(): void
  /**
   * Has SIGUSR2 write to stderr which functions of JavaScript are running, even if they never return: `vminit` sends it to an
   * agent that hangs. Does nothing where Node cannot tell.
   */
  reportStackOnSignal(): void
  /** umask(2) of this process. */
  setUmask(mask: number): void
  /** sethostname(2). */
  setHostname(name: string): void
  /** clock_settime(CLOCK_REALTIME), in microseconds since 1970; EINVAL for a time less than the machine's uptime. */
  setTime(microseconds: bigint): void
  /** Adds bytes to the kernel's entropy, with all their bits counted as unpredictable, and reseeds its generator. */
  addEntropy(data: Uint8Array): Promise<void>
  /** Calls `handler` instead of the signal's default action, until the returned function is called. */
  onSignal(signal: HandledSignal, handler: () => void): () => void
  readonly pid: number
  /** Node's name for it: `x64`, `arm64`, … */
  readonly architecture: string
}

export type HandledSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'SIGQUIT' | 'SIGUSR1' | 'SIGUSR2'

/** {@link System} of this process. */
export function linuxSystem(native: Native): System {
  return {
    signal(pid, signal) {
      try {
        process.kill(pid, signal)
      } catch (error) {
        throw fromNodeError('kill', `pid ${pid}`, error)
      }
    },
    setOpenFileLimit(limit) {
      checkErrno('set the limit of open files to', `${limit}`, native.setFileLimit(0, limit, limit))
    },
    setNice(nice) {
      try {
        // On Linux each thread has its own priority; later threads inherit the main thread's.
        for (const thread of readdirSync('/proc/self/task')) setPriority(Number(thread), nice)
      } catch (error) {
        throw fromNodeError('set', `nice to ${nice}`, error)
      }
    },
    lockMappedFiles() {
      checkErrno('lock', 'mapped files', native.lockMappedFiles())
    },
    reportStackOnSignal() {
      native.reportStackOnSignal()
    },
    setUmask(mask) {
      process.umask(mask)
    },
    setHostname(name) {
      checkErrno('sethostname', name, native.setHostname(name))
    },
    setTime(microseconds) {
      const [seconds, rest] = [microseconds / 1_000_000n, microseconds % 1_000_000n]
      const result = native.setTime(Number(seconds), Number(rest) * 1000)
      checkErrno('set the time to', `${seconds} s`, result)
    },
    addEntropy: (data) => addEntropy(native, data),
    onSignal(signal, handler) {
      process.on(signal, handler)
      return () => process.off(signal, handler)
    },
    pid: process.pid,
    architecture: process.arch,
  }
}
