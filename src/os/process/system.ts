import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { addEntropy, hardwareRandom } from '../devices/entropy.ts'
import { type HostTime, hostTime } from '../devices/host-time.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'

export interface System {
  /** kill(2); signal 0 only checks. Throws ESRCH when no such process exists. */
  signal(pid: number, signal: number): void
  /** setrlimit(RLIMIT_NOFILE) of this process, soft and hard; EPERM above `/proc/sys/fs/nr_open`. */
  setOpenFileLimit(limit: number): void
  /** setpriority(2) of all threads of this process. Programs that it starts do not inherit a value below 0. */
  setNice(nice: number): void
  /** mlock2(2) of the program and its libraries. EPERM or ENOMEM above RLIMIT_MEMLOCK without CAP_IPC_LOCK. */
  lockMappedFiles(): void
  /** `vminit` sends SIGUSR2 to an agent that hangs, which then writes its JavaScript stack to stderr, if Node can. */
  reportStackOnSignal(): void
  setUmask(mask: number): void
  setHostname(name: string): void
  /** clock_settime(CLOCK_REALTIME), in microseconds since 1970; EINVAL for a time less than the machine's uptime. */
  setTime(microseconds: bigint): void
  /** Adds bytes to the kernel's entropy, with all bits counted as unpredictable, and reseeds its generator. */
  addEntropy(data: Uint8Array): Promise<void>
  /** Fresh bytes of /dev/hwrng. ENOENT or ENODEV without a device, EAGAIN when it gives none before `signal` fires. */
  hardwareRandom(bytes: number, signal: AbortSignal): Promise<Uint8Array>
  /** Gives the generators of this process new seeds from the kernel's. ENOSYS when Node does not export OpenSSL's. */
  reseedGenerators(): void
  /** By the first of /dev/ptp0 and /dev/rtc0 that can be read; undefined without one. */
  hostTime(): Promise<HostTime | undefined>
  /** Calls `handler` instead of the signal's default action, until the returned function is called. */
  onSignal(signal: HandledSignal, handler: () => void): () => void
  readonly pid: number
  /** `x64`, `arm64`, … */
  readonly architecture: string
}

export type HandledSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'SIGQUIT' | 'SIGUSR1' | 'SIGUSR2'

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
    hardwareRandom,
    reseedGenerators() {
      checkErrno('reseed', 'generators', native.reseedGenerators())
    },
    hostTime: () => hostTime(native),
    onSignal(signal, handler) {
      process.on(signal, handler)
      return () => process.off(signal, handler)
    },
    pid: process.pid,
    architecture: process.arch,
  }
}
