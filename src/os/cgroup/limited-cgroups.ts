import { randomBytes } from 'node:crypto'
import { accessSync, constants, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rmdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { errnoOf } from '../../base/errors.ts'
import { kernelError } from '../errors.ts'
import { ROOT } from './hierarchies.ts'

export const LIMIT_CONTROLLERS = ['memory', 'cpu', 'pids'] as const
export type LimitController = (typeof LIMIT_CONTROLLERS)[number]

/** Limits of all processes of a cgroup together; undefined: none. */
export interface CgroupLimits {
  readonly memoryBytes?: number | undefined
  /** Thousandths of a CPU. */
  readonly cpuMilli?: number | undefined
  readonly tasks?: number | undefined
}

/** Of both versions, in microseconds. */
const PERIOD_US = 100_000

/** How long killed processes may take to leave a cgroup, and the pause between two tries to remove it. */
const LEAVE = { lastMs: 2000, lookMs: 5 } as const

/**
 * Cgroups with limits below one parent, which is there while it has any. They are made by synchronous calls: the kernel has all of
 * it in memory, and a trip to a thread of libuv takes longer.
 */
export class LimitedCgroups {
  readonly controllers: ReadonlySet<LimitController>
  readonly #isV2: boolean
  /** The cgroup's folder in each hierarchy; one on v2. */
  readonly #parents: readonly string[]

  private constructor(controllers: readonly LimitController[], isV2: boolean, parents: readonly string[]) {
    this.controllers = new Set(controllers)
    this.#isV2 = isV2
    this.#parents = parents
  }

  /**
   * Cgroups below `parent` (`microvm`) of this host; undefined where none can be made, which is tried. A user who is not
   * root can make some only on v2, beside its own.
   */
  static async find(parent: string, root = ROOT): Promise<LimitedCgroups | undefined> {
    const isV2 = isAllowed(`${root}/cgroup.controllers`, constants.R_OK)
    const above = isV2 && !isAllowed(root) ? ownParent(root) : root
    if (above === undefined) return undefined
    const controllers = LIMIT_CONTROLLERS.filter((name) =>
      isV2 ? canEnable(above, name) : isAllowed(join(root, name)),
    )
    if (controllers.length === 0) return undefined
    const parents = isV2 ? [join(above, parent)] : controllers.map((name) => join(root, name, parent))
    const found = new LimitedCgroups(controllers, isV2, parents)
    // Another may try at the same time.
    const trial = `trial-${randomBytes(16).toString('hex')}`
    try {
      await found.make(trial, { memoryBytes: 2 ** 30, cpuMilli: 1000, tasks: 1 })
      return found
    } catch {
      return undefined
    } finally {
      await found.remove(trial).catch(() => {})
    }
  }

  /**
   * Makes one in the hierarchies of its limits only: in another, its processes would share the time of one with all others
   * there. Throws a kernel error. What has been made is removed by {@link remove}.
   */
  async make(name: string, limits: CgroupLimits): Promise<void> {
    const settings = this.#settings(limits).filter(([controller]) => this.controllers.has(controller))
    const wanted = [...new Set(settings.map(([controller]) => controller))]
    const parents = this.#isV2 ? this.#parents : wanted.map((controller) => this.#folderOf(controller))
    for (const parent of parents) this.#makeFolder(parent, name, wanted)
    for (const [controller, file, value] of settings)
      write(join(this.#folderOf(controller), name, file), value)
    if (limits.memoryBytes !== undefined && this.controllers.has('memory'))
      this.#closeSwap(name, limits.memoryBytes)
  }

  /** Else what is above the limit goes to the swap of the host. A kernel without such a limit has no file for it. */
  #closeSwap(name: string, memoryBytes: number): void {
    // That of v1 is one of memory and swap together.
    const [file, value] = this.#isV2 ? ['memory.swap.max', 0] : ['memory.memsw.limit_in_bytes', memoryBytes]
    const path = join(this.#folderOf('memory'), name, file)
    if (isAllowed(path)) write(path, `${value}`)
  }

  /** Where it has been made. */
  async foldersOf(name: string): Promise<readonly string[]> {
    const folders = this.#parents.map((parent) => join(parent, name))
    return folders.filter((folder) => isAllowed(folder, constants.F_OK))
  }

  /** Waits for its killed processes. Throws EBUSY when one stays. Does nothing for one that is not there. */
  async remove(name: string): Promise<void> {
    for (const parent of this.#parents) {
      const folder = join(parent, name)
      const last = performance.now() + LEAVE.lastMs
      while (!(await isRemoved(folder))) {
        if (performance.now() > last) throw kernelError('rmdir', folder, 'EBUSY')
        await sleep(LEAVE.lookMs)
      }
      // Others may have cgroups there.
      await rmdir(parent).catch(() => {})
    }
  }

  #folderOf(controller: LimitController): string {
    const index = this.#isV2 ? 0 : [...this.controllers].indexOf(controller)
    return this.#parents[index] ?? ''
  }

  /** The parent may be removed meanwhile with the last other cgroup. */
  #makeFolder(parent: string, name: string, wanted: readonly LimitController[]): void {
    for (let tries = 1; ; tries++) {
      try {
        mkdirSync(parent, { recursive: true })
        if (this.#isV2) {
          const control = wanted.map((controller) => `+${controller}`).join(' ')
          for (const each of [dirname(parent), parent]) write(join(each, 'cgroup.subtree_control'), control)
        }
        mkdirSync(join(parent, name))
        return
      } catch (error) {
        if (errnoOf(error) === 'EEXIST') return
        if (errnoOf(error) !== 'ENOENT' || tries === TRIES) throw error
      }
    }
  }

  #settings({
    memoryBytes,
    cpuMilli,
    tasks,
  }: CgroupLimits): readonly (readonly [LimitController, string, string])[] {
    const quota = cpuMilli === undefined ? undefined : Math.round((cpuMilli * PERIOD_US) / 1000)
    const cpu = this.#isV2
      ? ([['cpu', 'cpu.max', `${quota} ${PERIOD_US}`]] as const)
      : ([
          ['cpu', 'cpu.cfs_period_us', `${PERIOD_US}`],
          ['cpu', 'cpu.cfs_quota_us', `${quota}`],
        ] as const)
    const memory = this.#isV2 ? 'memory.max' : 'memory.limit_in_bytes'
    return [
      ...(memoryBytes === undefined ? [] : [['memory', memory, `${memoryBytes}`] as const]),
      ...(quota === undefined ? [] : cpu),
      ...(tasks === undefined ? [] : [['pids', 'pids.max', `${tasks}`] as const]),
    ]
  }
}

const TRIES = 10

function isAllowed(path: string, mode = constants.W_OK): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}

/** The cgroup above that of this process, if this user may make others there. */
function ownParent(root: string): string | undefined {
  const own = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1] ?? '/'
  const parent = join(root, dirname(own))
  const isOurs = own !== '/' && isAllowed(parent) && isAllowed(join(parent, 'cgroup.procs'))
  return isOurs ? parent : undefined
}

function canEnable(folder: string, controller: LimitController): boolean {
  try {
    write(join(folder, 'cgroup.subtree_control'), `+${controller}`)
    return true
  } catch {
    return false
  }
}

function write(path: string, value: string): void {
  try {
    writeFileSync(path, value)
  } catch (error) {
    throw kernelError(`write ${value} to`, path, errnoOf(error) ?? 'EIO', error)
  }
}

async function isRemoved(folder: string): Promise<boolean> {
  try {
    await rmdir(folder)
    return true
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return true
    if (errnoOf(error) !== 'EBUSY') throw error
    return false
  }
}
