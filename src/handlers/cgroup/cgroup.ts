import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { CgroupStats } from '../../gen/agent.ts'
import {
  freezeFileOf,
  isFrozen,
  killCgroup,
  lookAtMember,
  pidsBelow,
  removeCgroups,
  thawCgroup,
  untilFrozen,
} from '../../os/cgroup/cgroup-folder.ts'
import { refreshCpuset } from '../../os/cgroup/cpuset.ts'
import { hierarchies, ROOT } from '../../os/cgroup/hierarchies.ts'
import type { Os } from '../../os/os.ts'
import { type OomWatch, watchOom } from './oom-watch.ts'
import { cgroupFiles } from './stats/cgroup-files.ts'
import { statsV1 } from './stats/stats-v1.ts'
import { statsV2 } from './stats/stats-v2.ts'

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
  /** Freezes it and all below it. */
  readonly freezeFile: string
  /** See {@link untilFrozen}. */
  untilFrozen(freeze: () => Promise<void>, signal: AbortSignal): Promise<void>
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

/** `path` is absolute below the root of each hierarchy. The cgroup need not exist yet. */
export function cgroupAt(os: Os, path: string, isV2: boolean, log: Logger): Cgroup {
  const inHierarchy = (hierarchy: string) => `${ROOT}${hierarchy}${path}`
  const freezer = inHierarchy(isV2 ? '' : '/freezer')
  const members = async () => ((await os.scratch.exists(freezer)) ? await pidsBelow(os, freezer) : [])
  return {
    isEmpty: async () => (await members()).length === 0,
    members,
    holds: async (pid) => (await lookAtMember(os.files, path, pid)).isMember,
    lookAt: (pid) => lookAtMember(os.files, path, pid),
    killAll: async () => {
      try {
        await killCgroup(os, freezer, isV2, log)
      } catch (error) {
        log.warn('killing a cgroup failed', { path, error: messageOf(error) })
      }
    },
    freezeFile: freezeFileOf(freezer, isV2),
    untilFrozen: (freeze, signal) => untilFrozen(os, freezer, isV2, freeze, signal),
    thaw: () => thawCgroup(os, freezer, isV2),
    isFrozen: () => isFrozen(os, freezer, isV2),
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
    remove: async () => removeCgroups(os, (await hierarchies(os, isV2)).map(inHierarchy), isV2),
  }
}
