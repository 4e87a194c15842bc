import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { ConsoleTail } from './console-tail.ts'

/** The kernel's own words when a CPU does not schedule any more. */
const KERNEL_WORDS = /BUG: soft lockup|hard LOCKUP|detected stalls on CPUs|self-detected stall on CPU/

const SILENT_MS = 10_000
/** The least share of a CPU that a spinning thread demands. */
const SPINNING = 0.9
const MEASURED_MS = 1000

const REMEDY = 'under emulation this happens now and then: run it again, with --cpus 1 if it happens often'

/** A kernel for another machine or console writes nothing, and so does a guest that locks up early. */
const NEVER_WROTE =
  'the kernel has never written a line on its console: run it again, since emulation locks a guest up now and then; ' +
  'check that a --kernel of your own is one for this machine, and its console='

/** Notices when a guest has locked up: its kernel says so, or its console is silent while QEMU keeps a CPU busy. */
export class LockUpWatch {
  readonly #pid: number
  readonly #nowMs: () => number
  #lastLineMs: number
  #hasWritten = false
  #kernelWords: string | undefined

  constructor(
    vm: { readonly pid: number; readonly console: Pick<ConsoleTail, 'onLine'> },
    nowMs: () => number = () => performance.now(),
  ) {
    this.#pid = vm.pid
    this.#nowMs = nowMs
    this.#lastLineMs = nowMs()
    vm.console.onLine((line) => {
      this.#lastLineMs = nowMs()
      this.#hasWritten = true
      if (KERNEL_WORDS.test(line)) this.#kernelWords ??= line
    })
  }

  /** A sentence, with the remedy, when the guest has locked up or never written; undefined otherwise. Takes a second. */
  async describe(): Promise<string | undefined> {
    if (this.#kernelWords !== undefined) return `the guest has locked up (${this.#kernelWords}); ${REMEDY}`
    const silentMs = this.#nowMs() - this.#lastLineMs
    if (silentMs < SILENT_MS) return undefined
    if (!this.#hasWritten) return NEVER_WROTE
    const demands = await cpuDemands(this.#pid)
    if (!demands.some((demand) => demand > SPINNING)) return undefined
    const seconds = Math.round(silentMs / 1000)
    return `the guest has locked up (no line on its console for ${seconds} s while a CPU is busy); ${REMEDY}`
  }
}

/** The part of a CPU that each thread of a process wants, measured for a second. Empty when the process has ended. */
async function cpuDemands(pid: number): Promise<readonly number[]> {
  const before = wantedMs(pid)
  const begin = performance.now()
  await delay(MEASURED_MS)
  const after = wantedMs(pid)
  const passedMs = performance.now() - begin
  return [...after].map(([thread, ms]) => (ms - (before.get(thread) ?? ms)) / passedMs)
}

/**
 * How long each thread of a process has run or waited for a CPU, in ms (/proc/PID/task/TID/schedstat): on a busy machine a
 * thread that spins does not get all of a CPU. Empty when the process has ended.
 */
function wantedMs(pid: number): ReadonlyMap<string, number> {
  const threads = new Map<string, number>()
  try {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const [ran = 0, waited = 0] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')
        .split(' ')
        .map(Number)
      threads.set(thread, (ran + waited) / 1e6)
    }
  } catch {
    // The process or a thread has ended.
  }
  return threads
}
