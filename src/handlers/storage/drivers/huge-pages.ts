import { neverAborted } from '../../../base/abort.ts'
import { AgentError } from '../../../base/errors.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import type { Files } from '../../../os/files/files.ts'

export interface ReservedPages {
  readonly pageSize: bigint
  readonly pages: bigint
  readonly before: bigint
}

interface Pool {
  /** nr_hugepages before the first storage; it is never set to less. */
  readonly before: bigint
  wanted: bigint
}

/** Reserves huge pages. The kernel has one number for each page size, set to the sum of all storages' needs. */
export class HugePages {
  readonly #files: Files
  readonly #pools = new Map<bigint, Pool>()
  /** Serialises changes, because each one reads the kernel's number back. */
  readonly #changes = new SerialQueue()

  constructor(files: Files) {
    this.#files = files
  }

  /** Throws INVALID_ARGUMENT unless `pagesize=` and `size=` (bytes) are valid, INTERNAL without contiguous memory. */
  async reserve(options: readonly string[]): Promise<ReservedPages> {
    const pageSize = bytesOf(options, 'pagesize')
    const size = bytesOf(options, 'size')
    if (pageSize === undefined || size === undefined) {
      throw new AgentError('INVALID_ARGUMENT', 'no pagesize/size options found')
    }
    const path = pathOf(pageSize)
    // The kernel's folder name is in KiB, so a size that is not a multiple of 1024 would name another size's folder.
    if (pageSize % 1024n !== 0n || (await this.#files.stat(path)) === undefined) {
      throw new AgentError(
        'INVALID_ARGUMENT',
        `storage option pagesize=${pageSize}: the kernel has no huge pages of this size`,
      )
    }
    const pages = size / pageSize
    if (pages === 0n) {
      throw new AgentError(
        'INVALID_ARGUMENT',
        `storage option size=${size}: less than one page, want at least ${pageSize}`,
      )
    }
    await this.#changes.run(() => this.#grow(path, pageSize, pages), neverAborted)
    return { pageSize, pages, before: this.#pools.get(pageSize)?.before ?? 0n }
  }

  /** Counts pages that the previous agent reserved. */
  restore({ pageSize, pages, before }: ReservedPages): void {
    const pool = this.#pools.get(pageSize) ?? { before, wanted: 0n }
    pool.wanted += pages
    this.#pools.set(pageSize, pool)
  }

  async release({ pageSize, pages }: ReservedPages): Promise<void> {
    await this.#changes.run(() => this.#shrink(pathOf(pageSize), pageSize, pages), neverAborted)
  }

  async #grow(path: string, pageSize: bigint, pages: bigint): Promise<void> {
    const pool = this.#pools.get(pageSize) ?? { before: await this.#count(path), wanted: 0n }
    this.#pools.set(pageSize, pool)
    const reserved = pool.wanted
    pool.wanted += pages
    try {
      await this.#set(path, pool)
      // The kernel accepts any number and reserves as many pages as it can.
      const allocated = (await this.#count(path)) - reserved
      if (allocated >= pages) return
      const message = `Only allocated ${allocated} of ${pages} hugepages of size ${pageSize}`
      throw new AgentError('INTERNAL', message)
    } catch (error) {
      await this.#shrink(path, pageSize, pages)
      throw error
    }
  }

  async #shrink(path: string, pageSize: bigint, pages: bigint): Promise<void> {
    const pool = this.#pools.get(pageSize)
    if (pool === undefined) return
    pool.wanted -= pages
    if (pool.wanted === 0n) this.#pools.delete(pageSize)
    await this.#set(path, pool)
  }

  async #set(path: string, { before, wanted }: Pool): Promise<void> {
    await this.#files.write(path, String(wanted > before ? wanted : before))
  }

  async #count(path: string): Promise<bigint> {
    return BigInt((await this.#files.readText(path)).trim())
  }
}

function pathOf(pageSize: bigint): string {
  return `/sys/kernel/mm/hugepages/hugepages-${pageSize / 1024n}kB/nr_hugepages`
}

function bytesOf(options: readonly string[], name: string): bigint | undefined {
  const value = options.findLast((option) => option.startsWith(`${name}=`))?.slice(name.length + 1)
  if (value === undefined) return undefined
  if (!/^\d+$/.test(value) || BigInt(value) === 0n) {
    throw new AgentError(
      'INVALID_ARGUMENT',
      `storage option ${name}=${value}: not a positive number of bytes`,
    )
  }
  return BigInt(value)
}
