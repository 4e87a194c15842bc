import { dirname } from 'node:path/posix'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isWithin } from '../../base/paths.ts'
import { hasController, hierarchies, ROOT, usesCgroupV2 } from '../../os/cgroup/hierarchies.ts'
import type { Os } from '../../os/os.ts'
import { type Cgroup, cgroupAt } from './cgroup.ts'
import { MEMINFO, memoryOf, reserveOf } from './memory-reserve.ts'
import { namedCounters } from './stats/counters.ts'

const MIB = 2n ** 20n

/** A limit stands for this time, because it hardly changes while the guest's memory does not. */
const STANDS_MS = 1000

/**
 * `memory.high` is below `memory.max` by this part of it, at most `HIGH_BYTES`. Between the two the kernel only slows
 * allocations: with a larger gap, a container hangs for minutes before a process is killed.
 */
const HIGH_PART = 128n
const HIGH_BYTES = 8n * MIB

interface Parts {
  readonly os: Os
  readonly log: Logger
  /** Its path below the root of each hierarchy: `/containers`. */
  readonly path: string
  /** Memory that containers cannot take; 0 lets them take all. */
  readonly reserveMib: number
}

/** The parent of all containers' cgroups. Its limit, which counts tmpfs and page cache, keeps memory for the agent. */
export class ContainersCgroup {
  readonly #parts: Parts
  #isWarned = false
  /** On the monotonic clock. */
  #standsUntilMs = 0

  constructor(parts: Parts) {
    this.#parts = parts
  }

  get path(): string {
    return this.#parts.path
  }

  /** Creates it if needed, and limits it by the guest's current memory. Logs once when that fails. Never rejects. */
  async limit(): Promise<void> {
    const nowMs = this.#parts.os.clock.monotonicMs()
    if (nowMs < this.#standsUntilMs) return
    try {
      await this.#makeAndLimit()
      this.#standsUntilMs = nowMs + STANDS_MS
    } catch (error) {
      if (this.#isWarned) return
      this.#isWarned = true
      const fields = { cgroup: this.path, error: messageOf(error) }
      this.#parts.log.warn('memory of all containers not limited', fields)
    }
  }

  /** The same, if the cgroup exists. */
  async limitAgain(): Promise<void> {
    const folder = this.#folder(await usesCgroupV2(this.#parts.os))
    if ((await this.#parts.os.files.stat(folder)) === undefined) return
    // At once before: a creation under way may just have set the limit of the memory before.
    this.#standsUntilMs = 0
    await this.limit()
  }

  /** See `Cgroup.holds`. */
  async holds(pid: number): Promise<boolean> {
    return (await this.#cgroup()).holds(pid)
  }

  /** Logs a failure. */
  async killAll(): Promise<void> {
    await (await this.#cgroup()).killAll()
  }

  /** Removes leftovers of containers too. Logs a failure. */
  async remove(): Promise<void> {
    this.#standsUntilMs = 0
    try {
      await (await this.#cgroup()).remove()
    } catch (error) {
      this.#parts.log.warn('cgroup not removed', { cgroup: this.path, error: messageOf(error) })
    }
  }

  /** Removes empty cgroups above the `path` of a removed container, unless one of `used` needs them. Never rejects. */
  async removeParents(path: string, used: readonly string[]): Promise<void> {
    if (dirname(path) === this.path) return
    const { files } = this.#parts.os
    const isV2 = await usesCgroupV2(this.#parts.os)
    for (const hierarchy of await hierarchies(this.#parts.os, isV2)) {
      for (let parent = dirname(path); isWithin(parent, this.path); parent = dirname(parent)) {
        if (parent === this.path || used.some((other) => isWithin(other, parent))) break
        await files.removeDirectory(`${ROOT}${hierarchy}${parent}`).catch(() => {})
      }
    }
  }

  async #cgroup(): Promise<Cgroup> {
    return cgroupAt(this.#parts.os, this.path, await usesCgroupV2(this.#parts.os), this.#parts.log)
  }

  #folder(isV2: boolean): string {
    return `${ROOT}${isV2 ? '' : '/memory'}${this.path}`
  }

  async #makeAndLimit(): Promise<void> {
    const { files, scratch } = this.#parts.os
    const isV2 = await usesCgroupV2(this.#parts.os)
    const folder = this.#folder(isV2)
    if (!(await hasController(this.#parts.os, 'memory', isV2)))
      throw new Error('the kernel has no memory controller')
    if (!(await scratch.exists(folder))) await files.makeDirectories(folder)
    if (isV2) await enableMemory(this.#parts.os, folder)
    const bytes = await this.#limitOf(folder, isV2)
    if (!isV2) return files.write(`${folder}/memory.limit_in_bytes`, `${bytes ?? -1}`)
    await files.write(`${folder}/memory.max`, `${bytes ?? 'max'}`)
    await files.write(`${folder}/memory.high`, `${bytes === undefined ? 'max' : highOf(bytes)}`)
  }

  /**
   * The memory that containers use and the kernel cannot reclaim, plus all available memory, less the reserve. The
   * result does not depend on the current use, and is never below it.
   */
  async #limitOf(folder: string, isV2: boolean): Promise<bigint | undefined> {
    if (this.#parts.reserveMib === 0) return undefined
    const usage = `${folder}/${isV2 ? 'memory.current' : 'memory.usage_in_bytes'}`
    const texts = await this.#parts.os.files.readSmall([MEMINFO, usage, `${folder}/memory.stat`])
    if (texts.includes('')) throw new Error(`memory use of ${folder} or the guest: not readable`)
    const [meminfo = '', usedText = '', statText] = texts
    const guest = memoryOf(meminfo)
    const used = BigInt(usedText.trim())
    const stat = namedCounters(statText)
    const prefix = isV2 ? '' : 'total_'
    const names = [`${prefix}active_file`, `${prefix}inactive_file`, 'slab_reclaimable']
    const reclaimable = names.reduce((sum, name) => sum + (stat[name] ?? 0n), 0n)
    const reserve = reserveOf(this.#parts.reserveMib, guest.total)
    return atLeastZero(used - reclaimable) + atLeastZero(guest.available - reserve)
  }
}

/** runc and crun enable the controller for the cgroups that they make; this one must have it before. */
async function enableMemory({ files, scratch }: Os, folder: string): Promise<void> {
  if (await scratch.exists(`${folder}/memory.max`)) return
  await files.write(`${ROOT}/cgroup.subtree_control`, '+memory')
}

function highOf(max: bigint): bigint {
  const part = max / HIGH_PART
  return max - (part < HIGH_BYTES ? part : HIGH_BYTES)
}

function atLeastZero(value: bigint): bigint {
  return value > 0n ? value : 0n
}
