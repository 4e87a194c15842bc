import { dirname } from 'node:path/posix'
import { withTimeout } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isWithin } from '../../base/paths.ts'
import type { CgroupStats } from '../../gen/agent.ts'
import { kernelError } from '../../os/errors.ts'
import type { Files } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { isEnding } from '../../os/process/proc-stat.ts'
import { type OomWatch, watchOom } from './oom-watch.ts'
import { cgroupFiles } from './stats/cgroup-files.ts'
import { statsV1 } from './stats/stats-v1.ts'
import { statsV2 } from './stats/stats-v2.ts'

export const ROOT = '/sys/fs/cgroup'

interface Freezer {
  readonly file: string
  readonly freeze: string
  readonly thaw: string
}

const FREEZER_V1: Freezer = { file: 'freezer.state', freeze: 'FROZEN', thaw: 'THAWED' }
const FREEZER_V2: Freezer = { file: 'cgroup.freeze', freeze: '1', thaw: '0' }

/** More folders than any kernel has of v1's hierarchies. */
const MOST_HIERARCHIES = 100

/** How long killed processes may take to leave a cgroup, and the pause between two tries to remove it on v1. */
const LEAVE_MS = 2000
const LOOK_MS = 10

/** A container's cgroup: the only complete list of its processes, whatever their parents and namespaces are. */
export interface Cgroup {
  /** Includes the cgroups below it. True when it does not exist. */
  isEmpty(): Promise<boolean>
  /** The pids in it and below it; none when it does not exist. */
  members(): Promise<readonly number[]>
  /** Whether a process is in it or below it. True for one that is ending or gone: it has no cgroup, or v1's root. */
  holds(pid: number): Promise<boolean>
  /** The same, with the text of /proc/PID/stat, which is empty for a process that is gone. */
  lookAt(pid: number): Promise<{ readonly isMember: boolean; readonly stat: string }>
  /** Sends SIGKILL to every process in it and below it. Logs a failure. */
  killAll(): Promise<void>
  /** Does nothing when it does not exist. */
  thaw(): Promise<void>
  /** False when it does not exist. */
  isFrozen(): Promise<boolean>
  /** Missing counters are zero. Never throws. */
  stats(): Promise<CgroupStats>
  /** See {@link watchOom}. */
  watchOom(before: bigint | undefined, killed: (kills: bigint) => void): Promise<OomWatch>
  /** The cgroup below it that the process moved to, such as `/init`, or ''. v1 needs no such move: always ''. */
  innerPathOf(pid: number): Promise<string>
  /** Adds CPUs that came online after it was made. `cpus` is the container's limit or empty, `online` has all CPUs. */
  refreshCpus(cpus: string, online: string): Promise<void>
  /** Removes it and all cgroups below it once their killed processes have left. Throws when one stays. */
  remove(): Promise<void>
}

/** Whether the machine uses cgroup v2 alone. */
export async function usesCgroupV2(os: Os): Promise<boolean> {
  return (await os.scratch.stat(`${ROOT}/cgroup.controllers`)) !== undefined
}

/** The folders of v1's hierarchies, below {@link ROOT}; '' for v2. */
export async function hierarchies({ scratch }: Os, isV2: boolean): Promise<readonly string[]> {
  if (isV2) return ['']
  const folder = await scratch.openFolder(ROOT)
  try {
    return (await folder.names(MOST_HIERARCHIES)).map((name) => `/${name}`)
  } finally {
    await folder.close()
  }
}

export async function hasController(os: Os, controller: string, isV2: boolean): Promise<boolean> {
  if (!isV2) return (await os.scratch.stat(`${ROOT}/${controller}`)) !== undefined
  return (await os.scratch.readText(`${ROOT}/cgroup.controllers`)).trim().split(' ').includes(controller)
}

/** `path` is absolute below the root of each hierarchy. The cgroup need not exist yet. */
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
      const [text = ''] = await os.files.readSmall([file])
      return /^(frozen 1|FROZEN)$/m.test(text)
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
      const removals = (await hierarchies(os, isV2)).map((hierarchy) =>
        removeBelow(os, inHierarchy(hierarchy), isV2),
      )
      // Try all hierarchies, even after a failure.
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
  // readSmall returns no text for a table of long paths.
  if (table === '' && !isGone) table = await files.readText(file).catch(() => '')
  // `4:memory:/path`, and `0::/path` on v2.
  const paths = table.split('\n').map((line) => line.split(':').slice(2).join(':'))
  const isMember = isGone || table === '' || paths.some((each) => isWithin(each, path))
  return { isMember, stat }
}

/** One write to cgroup.kill kills all processes in it and below it. Kernels before 5.14 lack that file. */
async function killV2(os: Os, folder: string, log: Logger): Promise<void> {
  const events = await os.files.readText(`${folder}/cgroup.events`).catch(() => '')
  if (/^populated 0$/m.test(events) && !/^frozen 1$/m.test(events)) return
  if ((await os.files.stat(folder)) === undefined) return
  const killFile = `${folder}/cgroup.kill`
  if ((await os.files.stat(killFile)) === undefined) {
    return killFrozen(os, folder, FREEZER_V2, log)
  }
  await os.files.write(killFile, '1')
  // The cgroup stays frozen without processes, and a runtime does not delete a paused container.
  await thawBelow(os, folder, FREEZER_V2, log)
}

async function killV1(os: Os, folder: string, log: Logger): Promise<void> {
  const status = await os.scratch.stat(folder)
  if (status === undefined) return
  if (status.links === 2) {
    const [listed, [state = '']] = await Promise.all([
      membersIn(os, folder),
      os.files.readSmall([`${folder}/freezer.state`]),
    ])
    if (listed === '' && state.trim() === FREEZER_V1.thaw) return
  }
  await killFrozen(os, folder, FREEZER_V1, log)
}

/** A frozen process cannot fork, and dies when it is thawed. */
async function killFrozen(os: Os, folder: string, freezer: Freezer, log: Logger): Promise<void> {
  await setFreezer(os, `${folder}/${freezer.file}`, freezer.freeze, log)
  try {
    await killListed(os, folder, log)
  } finally {
    await thawBelow(os, folder, freezer, log)
  }
}

/** Thaws all cgroups below it too: a container may have frozen one, and a frozen process does not die. */
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

/** Repeats until no new process is listed: freezing takes effect a moment after the write. */
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
  // cgroup.procs lists a process of another pid namespace as 0.
  return text
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0)
}

/** Empty for a cgroup that its container has removed (ENODEV when that was after the open). */
async function membersIn({ files }: Os, folder: string): Promise<string> {
  try {
    return await files.readText(`${folder}/cgroup.procs`)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error
    return ''
  }
}

async function removeBelow(os: Os, folder: string, isV2: boolean): Promise<void> {
  if (await isRemoved(os, folder)) return
  for (const each of (await foldersBelow(os, folder)).toReversed()) await removeWhenEmpty(os, each, isV2)
}

/** ENOENT: it was removed before, or under another name of its hierarchy (`cpu` is often a link to `cpu,cpuacct`). */
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

/** Retries while killed processes leave; only v2 notifies of that. Throws EBUSY when one stays. */
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

/** Undefined when the kernel has no inotify watch left. */
function tryToWatch({ cgroupEvents }: Os, folder: string, changes: Changes): { close(): void } | undefined {
  try {
    return cgroupEvents.onModified(`${folder}/cgroup.events`, () => changes.announce())
  } catch {
    return undefined
  }
}

/** Parents come before their children. */
async function foldersBelow(os: Os, folder: string): Promise<string[]> {
  const folders = [folder]
  const hasNone = (await os.scratch.stat(folder))?.links === 2
  for (const name of hasNone ? [] : await os.files.listFolders(folder)) {
    folders.push(...(await foldersBelow(os, `${folder}/${name}`)))
  }
  return folders
}

interface CpusetChange {
  /** The container's cgroup, below `hierarchy` (`/sys/fs/cgroup/cpuset`). */
  readonly path: string
  readonly hierarchy: string
  readonly isV2: boolean
  /** The container's limit (`0-1,3`), or empty. */
  readonly cpus: string
  readonly online: string
}

/** Widens the cgroups above first, from the top: on v1, a cgroup can have no CPU that its parent lacks. */
export async function refreshCpuset(files: Files, change: CpusetChange): Promise<void> {
  const { path, isV2, cpus, online } = change
  const fileOf = (cgroup: string) => `${change.hierarchy}${cgroup}/cpuset.cpus`
  for (const ancestor of ancestorsOf(path)) await widen(files, fileOf(ancestor), change)
  if (cpus !== '') await unlessGone(() => files.write(fileOf(path), cpus))
  // On v1 the runtime copied the parent's list into it; on v2 a cgroup without limits follows its parent.
  else if (!isV2) await unlessGone(() => files.write(fileOf(path), online))
}

/** Without the hierarchy's root, which always has all CPUs. */
function ancestorsOf(path: string): string[] {
  const parent = dirname(path)
  return parent === '/' ? [] : [...ancestorsOf(parent), parent]
}

async function widen(files: Files, file: string, { isV2, online }: CpusetChange): Promise<void> {
  await unlessGone(async () => {
    // Empty on v2: all CPUs, including later ones.
    if (isV2 && (await files.readText(file)).trim() === '') return
    await files.write(file, online)
  })
}

/** A container may be removed meanwhile, and a hierarchy without the cpuset controller has no such files. */
async function unlessGone(work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error
  }
}
