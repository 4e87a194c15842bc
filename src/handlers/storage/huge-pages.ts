import { neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { Files } from '../../os/files/files.ts'

/** The pages of one size that storages have asked for. */
interface Pool {
  /** What the kernel had before the first storage; it never gets fewer. */
  readonly before: bigint
  wanted: bigint
}

/**
 * The huge pages that the kernel sets aside for storages: one number for each page size, which is the sum of what all
 * of them need.
 */
export class HugePages {
  readonly #files: Files
  readonly #pools = new Map<bigint, Pool>()
  /** The number has to be read back before it is changed again, so changes wait for each other. */
  readonly #changes = new SerialQueue()

  constructor(files: Files) {
    this.#files = files
  }

  /**
   * Has the kernel set aside what the options `pagesize=` and `size=` (bytes) ask for (spec E.3.3), and returns the way
   * back. Throws INVALID_ARGUMENT without them, INTERNAL when there is too little memory in one piece.
   */
  async reserve(options: readonly string[]): Promise<() => Promise<void>> {
    const pageSize = bytesOf(options, 'pagesize')
    const size = bytesOf(options, 'size')
    if (pageSize === undefined || size === undefined) {
      throw new AgentError('INVALID_ARGUMENT', 'no pagesize/size options found')
    }
    const path = `/sys/kernel/mm/hugepages/hugepages-${pageSize / 1024n}kB/nr_hugepages`
    // Two sizes within one KiB would share the kernel's number.
    if (pageSize % 1024n !== 0n || (await this.#files.stat(path)) === undefined) {
      throw new AgentError('INVALID_ARGUMENT', `there are no huge pages of size ${pageSize}`)
    }
    const pages = size / pageSize
    if (pages === 0n) {
      throw new AgentError('INVALID_ARGUMENT', `storage option size=${size}: less than a page of ${pageSize}`)
    }
    await this.#changes.run(() => this.#grow(path, pageSize, pages), neverAborted)
    return () => this.#changes.run(() => this.#shrink(path, pageSize, pages), neverAborted)
  }

  async #grow(path: string, pageSize: bigint, pages: bigint): Promise<void> {
    const pool = this.#pools.get(pageSize) ?? { before: await this.#count(path), wanted: 0n }
    this.#pools.set(pageSize, pool)
    const reserved = pool.wanted
    pool.wanted += pages
    try {
      await this.#set(path, pool)
      // The kernel takes any number and sets aside what it can.
      const got = (await this.#count(path)) - reserved
      if (got >= pages) return
      const message = `Only allocated ${got} of ${pages} hugepages of size ${pageSize}`
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

function bytesOf(options: readonly string[], name: string): bigint | undefined {
  const value = options.findLast((option) => option.startsWith(`${name}=`))?.slice(name.length + 1)
  if (value === undefined) return undefined
  if (!/^\d+$/.test(value) || BigInt(value) === 0n) {
    throw new AgentError('INVALID_ARGUMENT', `storage option ${name}=${value}: not a number of bytes`)
  }
  return BigInt(value)
}
