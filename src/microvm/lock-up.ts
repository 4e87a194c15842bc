import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { ConsoleTail } from './console-tail.ts'

/** The kernel's own words when a CPU does not schedule any more. */
const KERNEL_WORDS = /BUG: soft lockup|hard LOCKUP|detected stalls on CPUs|self-detected stall on CPU/

/** How long a console must have been silent, and QEMU's use of a CPU measured. */
const SILENT_MS = 10_000
const MEASURED_MS = 1000
const TICKS_PER_SECOND = 100

const REMEDY = 'under emulation this happens now and then: run it again, with --cpus 1 if it happens often'

/** Notices when a guest has locked up: its kernel says so, or its console is silent while QEMU keeps a CPU busy. */
export class LockUpWatch {
  readonly #pid: number
  readonly #nowMs: () => number
  #lastLineMs: number
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
      if (KERNEL_WORDS.test(line)) this.#kernelWords ??= line
    })
  }

  /** A sentence, with the remedy, when the guest has locked up; undefined when it has not. Takes a second. */
  async describe(): Promise<string | undefined> {
    if (this.#kernelWords !== undefined) return `the guest has locked up (${this.#kernelWords}); ${REMEDY}`
    const silentMs = this.#nowMs() - this.#lastLineMs
    if (silentMs < SILENT_MS) return undefined
    const before = cpuTicks(this.#pid)
    await delay(MEASURED_MS)
    const share = (cpuTicks(this.#pid) - before) / ((TICKS_PER_SECOND * MEASURED_MS) / 1000)
    if (share < 0.9) return undefined
    const seconds = Math.round(silentMs / 1000)
    return `the guest has locked up (no line on its console for ${seconds} s while a CPU is busy); ${REMEDY}`
  }
}

/** The CPU time of a process in ticks; 0 when it has ended. */
function cpuTicks(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return Number(fields[11]) + Number(fields[12])
  } catch {
    return 0
  }
}
