import { LateAbort } from '../../base/abort.ts'
import type { Os } from '../../os/os.ts'

/** cgroup v1 notifies before the kernel kills a process; the kill is counted a little later. */
export const RETRIES_MS = [10, 20, 40, 80, 160, 320, 640, 1280]

export interface OomWatch {
  /** Reports kills since the last report. Never rejects. */
  look(): Promise<void>
  /** Reads the count a last time, and ends the watch. */
  end(): Promise<void>
}

export interface OomSource {
  /** The cgroup's folder; on v1 in the hierarchy of the memory controller. */
  readonly folder: string
  readonly isV2: boolean
}

/**
 * Calls `killed` with the number of all OOM kills, once for simultaneous ones. `before` kills were reported already, and
 * {@link OomWatch.look} finds those since that brought no notification; undefined: all current ones. `killed` must not
 * throw. Throws when the cgroup cannot be watched.
 */
export async function watchOom(
  os: Os,
  source: OomSource,
  before: bigint | undefined,
  killed: (kills: bigint) => void,
): Promise<OomWatch> {
  const { folder, isV2 } = source
  const file = isV2 ? 'memory.events' : 'memory.oom_control'
  const ended = new LateAbort()
  const kills = async () => {
    const text = await os.scratch.readText(`${folder}/${file}`).catch(() => '')
    return BigInt(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0)
  }
  let reported = before ?? (await kills())
  const look = async () => {
    const now = await kills()
    if (now <= reported) return false
    reported = now
    killed(now)
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
    : os.cgroupEvents.onNotified(folder, file, () => {
        // The sleep rejects when the watch ends; `end` reads the count a last time.
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
