import type { Os } from '../../os/os.ts'
import { namedCounters } from './stats/counters.ts'

/** cgroup v1 tells that memory is short before a process is killed for it, which is counted a little later. */
const RETRIES_MS = [10, 20, 40, 80, 160, 320, 640, 1280]

/** A cgroup whose processes are watched. */
export interface OomWatch {
  /** Looks whether a process was killed that was not told yet. Never rejects. */
  look(): Promise<void>
  /** Looks a last time, and ends. */
  end(): Promise<void>
}

/** Where the kernel counts the processes of a cgroup that it killed for want of memory. */
export interface OomSource {
  /** The cgroup's folder, on v1 that of the memory controller. */
  readonly folder: string
  readonly isV2: boolean
}

/**
 * Calls `killed` whenever the kernel has killed processes of a cgroup for want of memory (behaviour spec, section H.4),
 * once for those that it killed at the same time. Throws when the cgroup cannot be watched.
 */
export async function watchOom(os: Os, source: OomSource, killed: () => void): Promise<OomWatch> {
  const { folder, isV2 } = source
  const file = isV2 ? 'memory.events' : 'memory.oom_control'
  const ended = new AbortController()
  const kills = async () => {
    const text = await os.files.readText(`${folder}/${file}`).catch(() => undefined)
    return namedCounters(text).oom_kill ?? 0n
  }
  let told = await kills()
  const look = async () => {
    const now = await kills()
    if (now <= told) return false
    told = now
    killed()
    return true
  }
  const lookUntilKilled = async () => {
    if (await look()) return
    for (const pause of RETRIES_MS) {
      await os.clock.sleep(pause, ended.signal)
      if (await look()) return
    }
  }
  const listening = isV2
    ? os.cgroupEvents.onModified(`${folder}/${file}`, () => void look())
    : await os.cgroupEvents.onNotified(folder, file, () => {
        // The sleep is cut short when the watch ends, whose last look follows.
        lookUntilKilled().catch(() => {})
      })
  return {
    look: async () => void (await look()),
    end: async () => {
      listening.close()
      ended.abort()
      await look()
    },
  }
}
