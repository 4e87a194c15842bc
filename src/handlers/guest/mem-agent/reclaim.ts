import { errnoOf, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { isWithin } from '../../../base/paths.ts'
import type { Os } from '../../../os/os.ts'
import { type PressureSample, pressurePercent, samplePressure } from './pressure.ts'
import type { ReclaimSettings } from './settings.ts'

const CGROUPS = '/sys/fs/cgroup'

/** Bytes per write: few, because the removal of a cgroup waits for the end of the write. */
const PIECE_BYTES = 16 * 2 ** 20

/** Less is not worth the work, because even an idle container uses some pages again and again. */
const LEAST_BYTES = 2 ** 20

/** A container has the same object as long as it exists, because maps use the object as their key. */
export interface ReclaimTarget {
  readonly id: string
  readonly cgroupPath: string
}

export interface ReclaimContext {
  readonly os: Pick<Os, 'files' | 'clock'>
  readonly log: Logger
  /** The containers whose processes exist and whose state is not being changed. */
  readonly targets: () => readonly ReclaimTarget[]
  readonly takesSwappiness: boolean
}

/** One container at the end of a period. */
export interface ReclaimFigures {
  readonly pressurePercent: number
  /** Periods in a row with no more pressure than the limit, this one included. */
  readonly quietPeriods: number
  readonly inactiveFileBytes: number
  readonly inactiveAnonBytes: number
  readonly hasSwap: boolean
  readonly takesSwappiness: boolean
}

export type ReclaimAction =
  | { readonly kind: 'skip'; readonly because: string }
  /** `option` follows the number of bytes in a write to `memory.reclaim`. */
  | { readonly kind: 'reclaim'; readonly bytes: number; readonly option: string }

export function decideReclaim(settings: ReclaimSettings, figures: ReclaimFigures): ReclaimAction {
  const skip = (because: string): ReclaimAction => ({ kind: 'skip', because })
  if (figures.pressurePercent > settings.periodPsiPercentLimit) return skip('pressure')
  if (figures.quietPeriods < settings.evictionRunAgingCountMin) return skip('too few quiet periods')
  if (figures.hasSwap && !settings.swap && !figures.takesSwappiness) {
    return skip('this kernel cannot reclaim without swapping')
  }
  const anonBytes = settings.swap && figures.hasSwap ? figures.inactiveAnonBytes : 0
  const bytes = figures.inactiveFileBytes + anonBytes
  if (bytes < LEAST_BYTES) return skip('nothing unused')
  const option = figures.takesSwappiness ? ` swappiness=${settings.swap ? settings.swappinessMax : 0}` : ''
  return { kind: 'reclaim', bytes, option }
}

export class ContainerReclaim {
  readonly #dependencies: ReclaimContext
  #before = new Map<ReclaimTarget, PressureSample>()
  #quietPeriods = new Map<ReclaimTarget, number>()

  constructor(dependencies: ReclaimContext) {
    this.#dependencies = dependencies
  }

  async begin(): Promise<void> {
    const { os, targets } = this.#dependencies
    const before = new Map<ReclaimTarget, PressureSample>()
    for (const target of targets()) before.set(target, await samplePressure(os, pressureOf(target)))
    this.#before = before
  }

  /** Reclaims from each container that existed at the beginning of the period, one after the other. */
  async end(settings: ReclaimSettings, signal: AbortSignal): Promise<void> {
    const { os, log, targets, takesSwappiness } = this.#dependencies
    const own = await ownCgroup(os)
    const hasSwap = await swapIsOn(os)
    const quietPeriods = new Map<ReclaimTarget, number>()
    for (const target of targets()) {
      const before = this.#before.get(target)
      if (before === undefined || isWithin(own, target.cgroupPath)) continue
      if (signal.aborted) return
      const pressure = pressurePercent(before, await samplePressure(os, pressureOf(target)))
      const isQuiet = pressure <= settings.periodPsiPercentLimit
      const quiet = isQuiet ? (this.#quietPeriods.get(target) ?? 0) + 1 : 0
      quietPeriods.set(target, quiet)
      const figures = { pressurePercent: pressure, quietPeriods: quiet, hasSwap, takesSwappiness }
      await this.#reclaim(target, settings, figures, signal).catch((error) => {
        if (isGone(error)) return
        log.warn('memory not reclaimed', { containerId: target.id, error: messageOf(error) })
      })
    }
    this.#quietPeriods = quietPeriods
  }

  async #reclaim(
    target: ReclaimTarget,
    settings: ReclaimSettings,
    figures: Omit<ReclaimFigures, 'inactiveFileBytes' | 'inactiveAnonBytes'>,
    signal: AbortSignal,
  ): Promise<void> {
    const { os, log } = this.#dependencies
    const stat = await os.files.readText(`${folderOf(target)}/memory.stat`)
    const action = decideReclaim(settings, {
      ...figures,
      inactiveFileBytes: figureIn(stat, 'inactive_file'),
      inactiveAnonBytes: figureIn(stat, 'inactive_anon'),
    })
    if (action.kind === 'skip') {
      log.debug('memory not reclaimed', { containerId: target.id, because: action.because })
      return
    }
    const before = await memoryOf(os, target)
    const stopped = await this.#reclaimPieces(target, settings, action, signal)
    const bytes = Math.max(before - (await memoryOf(os, target)), 0)
    log.info('memory reclaimed', { containerId: target.id, bytes, stopped })
  }

  /** Reclaims until all is done or the kernel finds no more. Returns the reason of an earlier stop. */
  async #reclaimPieces(
    target: ReclaimTarget,
    settings: ReclaimSettings,
    { bytes, option }: ReclaimAction & { readonly kind: 'reclaim' },
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const { os } = this.#dependencies
    const began = await samplePressure(os, pressureOf(target))
    for (let left = bytes; left > 0; left -= PIECE_BYTES) {
      if (signal.aborted) return 'stopped'
      const piece = `${Math.min(left, PIECE_BYTES)}${option}`
      if (!(await giveBack(os, `${folderOf(target)}/memory.reclaim`, piece))) return undefined
      const pressure = pressurePercent(began, await samplePressure(os, pressureOf(target)))
      if (pressure > settings.evictionPsiPercentLimit) return 'pressure'
    }
    return undefined
  }
}

/** Returns false when the kernel reclaimed less than `piece` says (EAGAIN). */
async function giveBack({ files }: Pick<Os, 'files'>, file: string, piece: string): Promise<boolean> {
  try {
    await files.write(file, piece)
    return true
  } catch (error) {
    if (errnoOf(error) !== 'EAGAIN') throw error
    return false
  }
}

async function ownCgroup({ files }: Pick<Os, 'files'>): Promise<string> {
  const text = await files.readText('/proc/self/cgroup')
  return /^0::(.*)$/m.exec(text)?.[1] ?? '/'
}

/** /proc/swaps has a line of headings, and one for each swap space. */
async function swapIsOn({ files }: Pick<Os, 'files'>): Promise<boolean> {
  const text = await files.readText('/proc/swaps').catch(() => '')
  return text.trim().split('\n').length > 1
}

async function memoryOf({ files }: Pick<Os, 'files'>, target: ReclaimTarget): Promise<number> {
  return Number(await files.readText(`${folderOf(target)}/memory.current`))
}

function figureIn(stat: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0)
}

function folderOf({ cgroupPath }: ReclaimTarget): string {
  return `${CGROUPS}${cgroupPath}`
}

function pressureOf(target: ReclaimTarget) {
  const folder = folderOf(target)
  return { memory: `${folder}/memory.pressure`, io: `${folder}/io.pressure` }
}

/** The container was removed meanwhile. */
function isGone(error: unknown): boolean {
  return errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENODEV'
}
