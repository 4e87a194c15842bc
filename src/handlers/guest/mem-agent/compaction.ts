import { LONGEST_TIMER_MS } from '../../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { Os } from '../../../os/os.ts'
import { GUEST_PRESSURE, type PressureSample, pressurePercent, samplePressure } from './pressure.ts'
import type { CompactSettings } from './settings.ts'

/** A write compacts all memory, and returns when the compaction is done. */
export const COMPACT_FILE = '/proc/sys/vm/compact_memory'

const BUDDYINFO = '/proc/buddyinfo'

/** How often the pressure is read while a compaction runs. */
const LOOK_MS = 1000

export interface CompactionContext {
  readonly os: Pick<Os, 'files' | 'clock' | 'tools'>
  readonly log: Logger
  /** Absolute path of vminit's program, which makes the write. */
  readonly vminit: string
}

export interface CompactionFigures {
  readonly pressurePercent: number
  /** Free pages in blocks below the order of the settings. */
  readonly fragmentPages: number
  /** `fragmentPages` right after the last compaction; 0 before the first. */
  readonly fragmentPagesBefore: number
  /** Periods since the last compaction with too few fragments for another. */
  readonly periodsWithout: number
}

export type CompactionAction =
  | { readonly kind: 'skip'; readonly because: string }
  | { readonly kind: 'compact' }

export function decideCompaction(settings: CompactSettings, figures: CompactionFigures): CompactionAction {
  if (figures.pressurePercent > settings.periodPsiPercentLimit) return { kind: 'skip', because: 'pressure' }
  const grown = figures.fragmentPages - figures.fragmentPagesBefore
  if (grown >= settings.threshold || figures.periodsWithout >= settings.forceTimes) return { kind: 'compact' }
  return { kind: 'skip', because: 'too few fragments' }
}

/** Free pages in blocks of less than 2^`order` pages. /proc/buddyinfo counts free blocks of 1, 2, 4, … pages by zone. */
export function fragmentPages(buddyinfo: string, order: number): number {
  let pages = 0
  for (const [, counts = ''] of buddyinfo.matchAll(/^Node +\d+, zone +\S+ +(.*)$/gm)) {
    const blocks = counts.trim().split(/ +/).slice(0, order)
    for (const [index, count] of blocks.entries()) pages += Number(count) * 2 ** index
  }
  return pages
}

export class Compaction {
  readonly #dependencies: CompactionContext
  #before: PressureSample | undefined
  #fragmentPagesBefore = 0
  #periodsWithout = 0

  constructor(dependencies: CompactionContext) {
    this.#dependencies = dependencies
  }

  async begin(): Promise<void> {
    this.#before = await samplePressure(this.#dependencies.os, GUEST_PRESSURE)
  }

  async end(settings: CompactSettings, signal: AbortSignal): Promise<void> {
    const { os, log } = this.#dependencies
    if (this.#before === undefined) return
    const pages = async () => fragmentPages(await os.files.readText(BUDDYINFO), settings.order)
    const before = await pages()
    const action = decideCompaction(settings, {
      pressurePercent: pressurePercent(this.#before, await samplePressure(os, GUEST_PRESSURE)),
      fragmentPages: before,
      fragmentPagesBefore: this.#fragmentPagesBefore,
      periodsWithout: this.#periodsWithout,
    })
    if (action.kind === 'skip') {
      if (action.because !== 'pressure') this.#periodsWithout += 1
      log.debug('memory not compacted', { because: action.because })
      return
    }
    const startedMs = os.clock.monotonicMs()
    const stopped = await this.#compact(settings, signal)
    this.#fragmentPagesBefore = await pages()
    this.#periodsWithout = 0
    const ms = Math.round(os.clock.monotonicMs() - startedMs)
    log.info('memory compacted', {
      ms,
      fragmentsBefore: before,
      fragments: this.#fragmentPagesBefore,
      stopped,
    })
  }

  /**
   * Returns the reason of an early stop. A separate process makes the write, because the kernel stops only when the writer
   * is killed. The process is small, because its memory becomes small free blocks afterwards.
   */
  async #compact(settings: CompactSettings, signal: AbortSignal): Promise<string | undefined> {
    const { os, vminit } = this.#dependencies
    const [ended, tooMuchPressure] = [new AbortController(), new AbortController()]
    const watching = this.#watchPressure(settings, ended.signal, tooMuchPressure)
    try {
      const { exitCode, stderr } = await os.tools.run([vminit, '--compact-memory'], {
        timeoutMs: Math.min(settings.secMax * 1000, LONGEST_TIMER_MS),
        signal: AbortSignal.any([signal, tooMuchPressure.signal]),
      })
      if (exitCode !== 0) throw new AgentError('INTERNAL', stderr.trim())
      return undefined
    } catch (error) {
      if (signal.aborted) return 'stopped'
      if (tooMuchPressure.signal.aborted) return 'pressure'
      if (errnoOf(error) === 'ETIMEDOUT') return 'time'
      throw error
    } finally {
      ended.abort()
      await watching
    }
  }

  /** Fires `tooMuch` when the pressure from now on exceeds the limit; ends with `ended`. Never rejects. */
  async #watchPressure(
    { psiPercentLimit }: CompactSettings,
    ended: AbortSignal,
    tooMuch: AbortController,
  ): Promise<void> {
    const { os, log } = this.#dependencies
    try {
      const began = await samplePressure(os, GUEST_PRESSURE)
      for (;;) {
        await os.clock.sleep(LOOK_MS, ended)
        if (pressurePercent(began, await samplePressure(os, GUEST_PRESSURE)) > psiPercentLimit) break
      }
      tooMuch.abort()
    } catch (error) {
      if (!ended.aborted) log.warn('pressure of the guest not read', { error: messageOf(error) })
    }
  }
}
