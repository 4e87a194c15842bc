import { withTimeout } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isWithin } from '../../base/paths.ts'
import type { CgroupStats } from '../../gen/agent.ts'
import { kernelError } from '../../os/errors.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { isEnding } from '../../os/process/proc-stat.ts'
import { refreshCpuset } from './cpuset.ts'
import { type OomWatch, watchOom } from './oom-watch.ts'
import { cgroupFiles } from './stats/cgroup-files.ts'
import { statsV1 } from './stats/stats-v1.ts'
import { statsV2 } from './stats/stats-v2.ts'

/** Where the hierarchies of cgroups are mounted. */
export const ROOT = '/sys/fs/cgroup'

/** The file that freezes a cgroup, and the values written to it. */
interface Freezer {
  readonly file: string
  readonly freeze: string
  readonly thaw: string
}

const FREEZER_V1: Freezer = { file: 'freezer.state', freeze: 'FROZEN', thaw: 'THAWED' }
const FREEZER_V2: Freezer = { file: 'cgroup.freeze', freeze: '1', thaw: '0' }

/** How long killed processes may take to leave a cgroup, and the pause between two tries to remove it on v1. */
const LEAVE_MS = 2000
const LOOK_MS = 10

/**
 * A container's cgroup: the only complete list of its processes, however they were forked and whatever namespaces they are
 * in.
 */
export interface Cgroup {
  /** Whether no process is in it or below it. True when it does not exist. */
  isEmpty(): Promise<boolean>
  /** The pids of the processes in it and below it; none when it does not exist. */
  members(): Promise<readonly number[]>
  /**
   * Whether a process is in it or below it. True for one that is ending, not collected yet, or gone: that is in no cgroup
   * any more, or, on v1, in the root of each hierarchy.
   */
  holds(pid: number): Promise<boolean>
  /** The same, with the text of its /proc/PID/stat, which is empty for one that is gone. */
  lookAt(pid: number): Promise<{ readonly isMember: boolean; readonly stat: string }>
  /** Sends SIGKILL to every process in it. A failure is logged; a missing cgroup counts as empty. */
  killAll(): Promise<void>
  /** Thaws its processes, also those that the runtime froze. Does nothing when it does not exist. */
  thaw(): Promise<void>
  /** Whether all its processes are frozen. False when it does not exist. */
  isFrozen(): Promise<boolean>
  /** Its statistics; zeros for what it does not count, or when it does not exist. Never throws. */
  stats(): Promise<CgroupStats>
  /** As the function of this name. */
  watchOom(before: bigint | undefined, killed: (kills: bigint) => void): Promise<OomWatch>
  /**
   * The cgroup below it that a process has moved to, such as `/init`; '' when the process is in the cgroup itself, or not
   * below it. Always '' on v1, where a process need not leave a cgroup to divide it.
   */
  innerPathOf(pid: number): Promise<string>
  /**
   * Adds CPUs that came online after it was made. `cpus` is the container's limit, empty when it has none; `online` lists
   * all CPUs that are online.
   */
  refreshCpus(cpus: string, online: string): Promise<void>
  /** Removes it and all cgroups below it, once their killed processes have left. Throws when one stays. */
  remove(): Promise<void>
}

/** Whether the machine uses cgroup v2 alone. */
export async function usesCgroupV2(os: Os): Promise<boolean> {
  return (await os.scratch.stat(`${ROOT}/cgroup.controllers`)) !== undefined
}

/** Whether containers can be given limits of `controller`. */
export async function hasController(os: Os, controller: string, isV2: boolean): Promise<boolean> {
  if (!isV2) return (await os.scratch.stat(`${ROOT}/${controller}`)) !== undefined
  return (await os.scratch.readText(`${ROOT}/cgroup.controllers`)).trim().split(' ').includes(controller)
}

/** The cgroup at `path`, which is absolute below the root of each hierarchy. It need not exist yet. */
export function cgroupAt(os: Os, path: string, isV2: boolean, log: Logger): Cgroup {
  const inHierarchy = (hierarchy: string) => `${ROOT}${hierarchy}${path}`
  const members = async () => {
    const folder = inHierarchy(isV2 ? '' : '/freezer')
    return (await os.scratch.stat(folder)) === undefined ? [] : pidsBelow(os, folder)
  }
  return {
    isEmpty: async () => (await members()).length === 0,
    members,
    holds: async (pid) => (await lookAt(os.files, path, pid)).isMember,
    lookAt: (pid) => lookAt(os.files, path, pid),
    killAll: async () => {
      try {
        await (isV2 ? killV2(os, inHierarchy(''), log) : killV1(os, inHierarchy('/freezer'), log))
      } catch (error) {
        log.warn('killing a cgroup failed', { path, error: messageOf(error) })
      }
    },
    thaw: async () => {
      const folder = inHierarchy(isV2 ? '' : '/freezer')
      if ((await os.files.stat(folder)) === undefined) return
      const { file, thaw } = isV2 ? FREEZER_V2 : FREEZER_V1
      await os.files.write(`${folder}/${file}`, thaw)
    },
    isFrozen: async () => {
      const file = isV2 ? `${inHierarchy('')}/cgroup.events` : `${inHierarchy('/freezer')}/freezer.state`
      return /^(frozen 1|FROZEN)$/m.test(await os.files.readText(file).catch(() => ''))
    },
    stats: () =>
      isV2
        ? statsV2(cgroupFiles(os.files, () => inHierarchy('')))
        : statsV1(cgroupFiles(os.files, (controller) => inHierarchy(`/${controller}`))),
    watchOom: (before, killed) =>
      watchOom(os, { folder: inHierarchy(isV2 ? '' : '/memory'), isV2 }, before, killed),
    innerPathOf: async (pid) => {
      const text = isV2 ? await os.files.readText(`/proc/${pid}/cgroup`).catch(() => '') : ''
      const current = /^0::(.*)$/m.exec(text)?.[1] ?? ''
      return current.startsWith(`${path}/`) ? current.slice(path.length) : ''
    },
    refreshCpus: (cpus, online) => {
      const hierarchy = `${ROOT}${isV2 ? '' : '/cpuset'}`
      return refreshCpuset(os.files, { path, hierarchy, isV2, cpus, online })
    },
    remove: async () => {
      const hierarchies = isV2 ? [''] : (await os.files.list(ROOT)).map((name) => `/${name}`)
      const removals = hierarchies.map((hierarchy) => removeBelow(os, inHierarchy(hierarchy), isV2))
      // Each is tried, whatever the outcome for the others.
      for (const removal of await Promise.allSettled(removals)) {
        if (removal.status === 'rejected') throw removal.reason
      }
    },
  }
}

async function lookAt(files: Os['files'], path: string, pid: number): ReturnType<Cgroup['lookAt']> {
  const file = `/proc/${pid}/cgroup`
  let [table = '', stat = ''] = await files.readSmall([file, `/proc/${pid}/stat`])
  const isGone = stat === '' || isEnding(stat)
  // A table of long paths is not small.
  if (table === '' && !isGone) table = await files.readText(file).catch(() => '')
  // `4:memory:/path`, and `0::/path` on v2.
  const paths = table.split('\n').map((line) => line.split(':').slice(2).join(':'))
  const isMember = isGone || table === '' || paths.some((each) => isWithin(each, path))
  return { isMember, stat }
}

/** Kills all processes, those below it too, by one write to cgroup.kill. Kernels before 5.14 lack that file. */
async function killV2(os: Os, folder: string, log: Logger): Promise<void> {
  const events = await os.files.readText(`${folder}/cgroup.events`).catch(() => '')
  if (/^populated 0$/m.test(events) && !/^frozen 1$/m.test(events)) return
  if ((await os.files.stat(folder)) === undefined) return
  const killFile = `${folder}/cgroup.kill`
  if ((await os.files.stat(killFile)) === undefined) {
    return killFrozen(os, folder, FREEZER_V2, log)
  }
  await os.files.write(killFile, '1')
  // A frozen cgroup stays frozen without processes, and a runtime deletes no paused container.
  await thawBelow(os, folder, FREEZER_V2, log)
}

async function killV1(os: Os, folder: string, log: Logger): Promise<void> {
  if ((await os.files.stat(folder)) === undefined) return
  await killFrozen(os, folder, FREEZER_V1, log)
}

/** Kills while the cgroup is frozen: its processes cannot fork meanwhile, and die when they are thawed. */
async function killFrozen(os: Os, folder: string, freezer: Freezer, log: Logger): Promise<void> {
  await setFreezer(os, `${folder}/${freezer.file}`, freezer.freeze, log)
  try {
    await killListed(os, folder, log)
  } finally {
    await thawBelow(os, folder, freezer, log)
  }
}

/** Thaws it and all below it: a process in a cgroup that its container has frozen does not die. */
async function thawBelow(os: Os, folder: string, { file, thaw }: Freezer, log: Logger): Promise<void> {
  for (const each of await foldersBelow(os, folder)) await setFreezer(os, `${each}/${file}`, thaw, log)
}

async function setFreezer({ files }: Os, file: string, value: string, log: Logger): Promise<void> {
  try {
    await files.write(file, value)
  } catch (error) {
    log.warn('freezer failed', { file, value, error: messageOf(error) })
  }
}

/** Kills until a list shows no new process: freezing takes effect a moment after the write. */
async function killListed(os: Os, folder: string, log: Logger): Promise<void> {
  const killed = new Set<number>()
  for (;;) {
    const fresh = (await pidsBelow(os, folder)).filter((pid) => !killed.has(pid))
    if (fresh.length === 0) return
    for (const pid of fresh) {
      killed.add(pid)
      kill(os, pid, log)
    }
  }
}

function kill(os: Os, pid: number, log: Logger): void {
  try {
    killIfAlive(os, pid)
  } catch (error) {
    log.warn('kill failed', { pid, error: messageOf(error) })
  }
}

async function pidsBelow(os: Os, folder: string): Promise<number[]> {
  let text = ''
  for (const each of await foldersBelow(os, folder)) text += await membersIn(os, each)
  // A process of another pid namespace is listed as 0.
  return text
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0)
}

/** The text of cgroup.procs; empty for a cgroup that its container has removed (ENODEV when that was after the open). */
async function membersIn({ files }: Os, folder: string): Promise<string> {
  try {
    return await files.readText(`${folder}/cgroup.procs`)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error
    return ''
  }
}

/** Removes a cgroup and all below it; few have any below them. */
async function removeBelow(os: Os, folder: string, isV2: boolean): Promise<void> {
  if (await isRemoved(os, folder)) return
  for (const each of (await foldersBelow(os, folder)).toReversed()) await removeWhenEmpty(os, each, isV2)
}

/**
 * rmdir. ENOENT: the cgroup was removed before, or under another name of its hierarchy (`cpu` is often a link to
 * `cpu,cpuacct`). Returns false while a process is in it or below it, or a cgroup below it.
 */
async function isRemoved({ files }: Os, folder: string): Promise<boolean> {
  try {
    await files.removeDirectory(folder)
    return true
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return true
    if (errnoOf(error) !== 'EBUSY') throw error
    return false
  }
}

/** Tries again while killed processes are leaving, of which only v2 notifies. Throws EBUSY when one stays. */
async function removeWhenEmpty(os: Os, folder: string, isV2: boolean): Promise<void> {
  if (await isRemoved(os, folder)) return
  const changes = new Changes()
  const events = isV2 ? tryToWatch(os, folder, changes) : undefined
  const givenUp = new AbortController()
  const removal = async () => {
    for (;;) {
      const left =
        events === undefined ? os.clock.sleep(LOOK_MS, givenUp.signal) : changes.next(givenUp.signal)
      left.catch(() => {})
      if (await isRemoved(os, folder)) return
      await left
    }
  }
  try {
    await withTimeout(os.clock, LEAVE_MS, removal(), () => kernelError('rmdir', folder, 'EBUSY'))
  } finally {
    givenUp.abort()
    events?.close()
  }
}

/** undefined when the kernel has no watch left. */
function tryToWatch({ cgroupEvents }: Os, folder: string, changes: Changes): { close(): void } | undefined {
  try {
    return cgroupEvents.onModified(`${folder}/cgroup.events`, () => changes.announce())
  } catch {
    return undefined
  }
}

/** The folder and all below it, each before those below it. */
async function foldersBelow(os: Os, folder: string): Promise<string[]> {
  const folders = [folder]
  for (const name of await os.files.listFolders(folder)) {
    folders.push(...(await foldersBelow(os, `${folder}/${name}`)))
  }
  return folders
}
