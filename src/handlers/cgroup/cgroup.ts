import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { CgroupStats } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { refreshCpuset } from './cpuset.ts'
import { type OomWatch, watchOom } from './oom-watch.ts'
import { cgroupFiles } from './stats/cgroup-files.ts'
import { statsV1 } from './stats/stats-v1.ts'
import { statsV2 } from './stats/stats-v2.ts'

const ROOT = '/sys/fs/cgroup'

/** The file that freezes a cgroup, and what is written to it. */
interface Freezer {
  readonly file: string
  readonly freeze: string
  readonly thaw: string
}

const FREEZER_V1: Freezer = { file: 'freezer.state', freeze: 'FROZEN', thaw: 'THAWED' }
const FREEZER_V2: Freezer = { file: 'cgroup.freeze', freeze: '1', thaw: '0' }

/** How long killed processes may take to leave a cgroup, and how often it is looked whether they have. */
const LEAVE_MS = 2000
const LOOK_MS = 10

/** A container's cgroup: the only sure list of its processes, however they forked and whatever namespaces they have. */
export interface Cgroup {
  /** Whether no process is in it or below it; also when it does not exist. */
  isEmpty(): Promise<boolean>
  /** The processes in it and below it, as this process sees them; none when it does not exist. */
  members(): Promise<readonly number[]>
  /** Sends SIGKILL to every process in it. What cannot be done is logged; a missing cgroup is an empty one. */
  killAll(): Promise<void>
  /** Lets frozen processes go on, whoever froze them. A missing cgroup is fine. */
  thaw(): Promise<void>
  /** What it counts; zeros for what it does not, or when it is gone. Never throws. */
  stats(): Promise<CgroupStats>
  /** Calls `killed` whenever the kernel has killed processes in it for want of memory. Throws when it cannot. */
  watchOom(killed: () => void): Promise<OomWatch>
  /**
   * Where below it, such as `/init`, a process is that may have moved itself; '' when it is in the cgroup itself, or
   * nowhere below. On v1 always '': there a process may join any cgroup, so nobody needs to move away.
   */
  innerPathOf(pid: number): Promise<string>
  /**
   * Gives it CPUs that came online later than it: `cpus` is what the container was limited to, empty when it was not,
   * `online` all there are.
   */
  refreshCpus(cpus: string, online: string): Promise<void>
  /** Removes it and all below it once its processes, which were killed, have left. Throws when one stays. */
  remove(): Promise<void>
}

/** True when the machine uses cgroup v2 alone. */
export async function usesCgroupV2(os: Os): Promise<boolean> {
  return (await os.files.stat(`${ROOT}/cgroup.controllers`)) !== undefined
}

/** The cgroup at `path`, an absolute path below the root of each hierarchy. It need not exist yet. */
export function cgroupAt(os: Os, path: string, isV2: boolean, log: Logger): Cgroup {
  const inHierarchy = (hierarchy: string) => `${ROOT}${hierarchy}${path}`
  const members = async () => {
    const folder = inHierarchy(isV2 ? '' : '/freezer')
    return (await os.files.stat(folder)) === undefined ? [] : pidsBelow(os, folder)
  }
  return {
    isEmpty: async () => (await members()).length === 0,
    members,
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
    stats: () =>
      isV2
        ? statsV2(cgroupFiles(os.files, () => inHierarchy('')))
        : statsV1(cgroupFiles(os.files, (controller) => inHierarchy(`/${controller}`))),
    watchOom: (killed) => watchOom(os, { folder: inHierarchy(isV2 ? '' : '/memory'), isV2 }, killed),
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
      const removals = hierarchies.map((hierarchy) => removeBelow(os, inHierarchy(hierarchy)))
      // Each is tried, whatever becomes of the others.
      for (const removal of await Promise.allSettled(removals)) {
        if (removal.status === 'rejected') throw removal.reason
      }
    },
  }
}

/** One write kills them all, below it too; kernels before 5.14 lack it. */
async function killV2(os: Os, folder: string, log: Logger): Promise<void> {
  if ((await os.files.stat(folder)) === undefined) return
  const killFile = `${folder}/cgroup.kill`
  if ((await os.files.stat(killFile)) === undefined) {
    return killFrozen(os, folder, FREEZER_V2, log)
  }
  await os.files.write(killFile, '1')
  // A paused container would be one without processes too, and a runtime deletes no paused one.
  await os.files.write(`${folder}/cgroup.freeze`, '0')
}

async function killV1(os: Os, folder: string, log: Logger): Promise<void> {
  if ((await os.files.stat(folder)) === undefined) return
  await killFrozen(os, folder, FREEZER_V1, log)
}

/** Frozen processes cannot fork away while they are listed; they die when they are thawed. */
async function killFrozen(os: Os, folder: string, freezer: Freezer, log: Logger): Promise<void> {
  const set = async (value: string) => {
    try {
      await os.files.write(`${folder}/${freezer.file}`, value)
    } catch (error) {
      log.warn('freezer failed', { folder, value, error: messageOf(error) })
    }
  }
  await set(freezer.freeze)
  try {
    await killListed(os, folder, log)
  } finally {
    await set(freezer.thaw)
  }
}

/** Kills until a listing shows no new process: freezing takes effect a moment after it was asked for. */
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
  const text = await membersIn(os, folder)
  // A process of another pid namespace is listed as 0.
  const pids = text
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0)
  for (const child of await foldersIn(os, folder)) pids.push(...(await pidsBelow(os, child)))
  return pids
}

/** Nobody is in a cgroup that its container has removed meanwhile: ENODEV when that was after the open. */
async function membersIn({ files }: Os, folder: string): Promise<string> {
  try {
    return await files.readText(`${folder}/cgroup.procs`)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error
    return ''
  }
}

async function removeBelow(os: Os, folder: string): Promise<void> {
  if ((await os.files.stat(folder)) === undefined) return
  for (const child of await foldersIn(os, folder)) await removeBelow(os, child)
  await removeWhenEmpty(os, folder)
}

/**
 * A process leaves its cgroup a moment after it was killed; on v1 nothing tells when. One that is gone was removed by
 * another name of its hierarchy (`cpu` is often a link to `cpu,cpuacct`).
 */
async function removeWhenEmpty({ files, clock }: Os, folder: string): Promise<void> {
  const givenUpMs = clock.monotonicMs() + LEAVE_MS
  for (;;) {
    try {
      await files.removeDirectory(folder)
      return
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return
      if (errnoOf(error) !== 'EBUSY' || clock.monotonicMs() >= givenUpMs) throw error
    }
    await clock.sleep(LOOK_MS)
  }
}

async function foldersIn({ files }: Os, folder: string): Promise<string[]> {
  return (await files.listFolders(folder)).map((name) => `${folder}/${name}`)
}
