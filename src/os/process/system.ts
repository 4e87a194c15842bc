import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { addEntropy } from '../devices/entropy.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'

/** The agent's own process and the machine it runs on. */
export interface System {
  /** kill(2); 0 probes. Throws ESRCH when there is no such process. */
  signal(pid: number, signal: number): void
  /** setrlimit(RLIMIT_NOFILE) of this process, soft and hard alike; EPERM above `/proc/sys/fs/nr_open`. */
  setOpenFileLimit(limit: number): void
  /** setpriority(2) of this process with all its threads; programs that it starts do not inherit less than 0. */
  setNice(nice: number): void
  /** umask(2) of this process. */
  setUmask(mask: number): void
  /** sethostname(2). */
  setHostname(name: string): void
  /** clock_settime(CLOCK_REALTIME), in microseconds since 1970; EINVAL for a time before the machine's start by its own count. */
  setTime(microseconds: bigint): void
  /** Mixes bytes into the kernel's random numbers, counts all their bits as unpredictable, and seeds anew. */
  addEntropy(data: Uint8Array): Promise<void>
  /** Calls `handler` instead of the signal's default action. Returns how to stop that. */
  onSignal(signal: HandledSignal, handler: () => void): () => void
  readonly pid: number
  /** Node's name for it: `x64`, `arm64`, … */
  readonly architecture: string
}

export type HandledSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'SIGQUIT' | 'SIGUSR1' | 'SIGUSR2'

/** This process, and the name of the machine. */
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
      checkErrno('set the limit of open files to', `${limit}`, native.setFileLimit(limit, limit))
    },
    setNice(nice) {
      try {
        // To Linux a priority is a thread's, and those to come inherit the loop's.
        for (const thread of readdirSync('/proc/self/task')) setPriority(Number(thread), nice)
      } catch (error) {
        throw fromNodeError('set', `nice to ${nice}`, error)
      }
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
