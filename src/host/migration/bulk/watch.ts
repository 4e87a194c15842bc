import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { BlockJob, MigrationInfo } from '../../qemu/qmp/commands.ts'
import { type BulkProgress, type BulkQemu, type MemoryProgress, NAMES } from './bulk.ts'
import { migrationError } from './channel-wait.ts'
import { checkMirror } from './mirror-job.ts'
import type { BulkSettings } from './settings.ts'

const LOOK_MS = 200

export interface WatchParts {
  readonly qemu: BulkQemu
  readonly settings: BulkSettings
  readonly onProgress: (progress: BulkProgress) => void
  /** Ends all connections: QEMU may be waiting for a peer, and answers nothing then. */
  readonly cut: () => void
}

/** Looks at the mirrors and the memory of a source again and again, until one has failed, or a wire has carried nothing. */
export class Watch {
  readonly #parts: WatchParts
  readonly #failure = Promise.withResolvers<AgentError>()
  readonly #over = new AbortController()
  /** The disks whose mirrors are to run, or to end in time, by their indices. */
  readonly #mirrors = new Map<number, { readonly key: string; readonly isEnding: boolean }>()
  /** When the guest's memory was begun to be sent; undefined while it is not. */
  #memorySince: number | undefined
  #moved = { at: performance.now(), what: '' }

  constructor(parts: WatchParts) {
    this.#parts = parts
    void this.#look()
  }

  /** Resolves when something has failed; never rejects. */
  get failed(): Promise<AgentError> {
    return this.#failure.promise
  }

  /** The result of `work`, unless something fails before. */
  async unlessFailed<T>(work: Promise<T>): Promise<T> {
    const failed = this.failed.then((error) => {
      throw error
    })
    return await Promise.race([abortable(work, this.#parts.qemu.signal), failed])
  }

  mirrorBegins(index: number, key: string): void {
    this.#mirrors.set(index, { key, isEnding: false })
  }

  /** The mirror has to be gone before a wire may have carried nothing for too long. */
  mirrorEnds(index: number, key: string): void {
    this.#moved = { at: performance.now(), what: '' }
    this.#mirrors.set(index, { key, isEnding: true })
  }

  mirrorHasEnded(index: number): void {
    this.#mirrors.delete(index)
  }

  memoryBegins(): void {
    this.#moved = { at: performance.now(), what: '' }
    this.#memorySince = performance.now()
  }

  memoryEnds(): void {
    this.#memorySince = undefined
  }

  end(): void {
    this.#over.abort()
  }

  async #look(): Promise<void> {
    const { signal } = this.#over
    const { cut, settings } = this.#parts
    while (!signal.aborted) {
      try {
        const late = AbortSignal.timeout(settings.stallMs)
        await abortable(this.#check(), AbortSignal.any([signal, late])).catch((error) => {
          if (signal.aborted || !late.aborted) throw error
          throw new AgentError('UNAVAILABLE', `QEMU waits for its peer for more than ${settings.stallMs} ms`)
        })
        await delay(LOOK_MS, undefined, { signal })
      } catch (error) {
        if (signal.aborted) return
        const failure = error instanceof AgentError ? error : new AgentError('INTERNAL', messageOf(error))
        this.#failure.resolve(failure)
        cut()
        return
      }
    }
  }

  async #check(): Promise<void> {
    const { qmp, signal } = this.#parts.qemu
    // Asked also without any: QEMU that waits for its peer does not answer.
    const jobs = await qmp.execute('query-block-jobs', {}, signal)
    const mirrors = [...this.#mirrors].flatMap(([index, { key, isEnding }]) => {
      const job = jobs.find(({ device }) => device === NAMES.disk(index))
      if (isEnding && job === undefined) return []
      return [{ ...checkMirror(key, isEnding || job?.status !== 'concluded' ? job : undefined), isEnding }]
    })
    const info = this.#memorySince === undefined ? undefined : await qmp.execute('query-migrate', {}, signal)
    if (this.#memorySince !== undefined && info !== undefined) this.#checkMemory(info, this.#memorySince)
    this.#tell(mirrors, info)
    this.#checkMoving(mirrors, info)
  }

  #checkMemory(info: MigrationInfo, since: number): void {
    const { memoryMs } = this.#parts.settings
    if (info.status === 'failed' || info.status === 'cancelled') throw migrationError(info)
    if (info.status !== 'active' || performance.now() - since < memoryMs) return
    const { bytesPerSecond, dirtyBytesPerSecond } = progressOf(info)
    const rates = `the guest changes ${mib(dirtyBytesPerSecond)}, the wire carries ${mib(bytesPerSecond)}`
    const text = `memory: not moved in ${memoryMs} ms: ${rates}`
    throw new AgentError(
      'DEADLINE_EXCEEDED',
      `${text}, want a longer downtimeMs, or a higher throttlePercent`,
    )
  }

  #tell(mirrors: readonly BlockJob[], info: MigrationInfo | undefined): void {
    const { onProgress } = this.#parts
    const sum = (name: 'offset' | 'len') => mirrors.reduce((bytes, job) => bytes + job[name], 0)
    if (info === undefined && mirrors.length > 0)
      onProgress({ disks: { copiedBytes: sum('offset'), totalBytes: sum('len') } })
    if (info?.ram !== undefined) onProgress({ memory: progressOf(info) })
  }

  #checkMoving(mirrors: readonly Mirror[], info: MigrationInfo | undefined): void {
    const { stallMs } = this.#parts.settings
    const isBehind = mirrors.some((job) => job.isEnding || job.offset < job.len)
    const isSending = info !== undefined && info.status !== 'pre-switchover' && info.status !== 'completed'
    const what = JSON.stringify([
      mirrors.map((job) => [job.offset, job.len, job.status]),
      [info?.status, info?.ram?.transferred],
    ])
    const now = performance.now()
    if (what !== this.#moved.what || (!isBehind && !isSending)) this.#moved = { at: now, what }
    if (now - this.#moved.at < stallMs) return
    const where = isSending ? 'memory' : 'disks'
    throw new AgentError('UNAVAILABLE', `${where}: the wire has carried nothing for ${stallMs} ms`)
  }
}

type Mirror = BlockJob & { readonly isEnding: boolean }

function progressOf(info: MigrationInfo): MemoryProgress {
  const { ram } = info
  return {
    transferredBytes: ram?.transferred ?? 0,
    remainingBytes: ram?.remaining ?? 0,
    totalBytes: ram?.total ?? 0,
    dirtyBytesPerSecond: (ram?.['dirty-pages-rate'] ?? 0) * (ram?.['page-size'] ?? 0),
    bytesPerSecond: Math.round(((ram?.mbps ?? 0) * 1e6) / 8),
    rounds: ram?.['dirty-sync-count'] ?? 0,
    throttledPercent: info['cpu-throttle-percentage'] ?? 0,
  }
}

function mib(bytesPerSecond: number): string {
  return `${(bytesPerSecond / 2 ** 20).toFixed(1)} MiB/s`
}
