import { readdirSync } from 'node:fs'
import { setPriority } from 'node:os'
import { addEntropy } from '../devices/entropy.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { System } from '../os.ts'

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
