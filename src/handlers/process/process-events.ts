import type { ExitRecord } from '../../os/supervisor/supervisor.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { ContainerProcess } from './process.ts'

export interface ProcessEventContext {
  readonly events: EventLog
  readonly oom: Pick<OomEvents, 'look'>
}

export interface FollowedProcess {
  /** Empty for the first process. */
  readonly execId: string
  readonly process: Pick<ContainerProcess, 'pid' | 'exit' | 'starting'>
  /** In nanoseconds of CLOCK_BOOTTIME. */
  readonly beganNs: bigint
  readonly record: { readonly key: string; readonly id: string; readonly oomKills: bigint }
}

/** Adds an event when the process ends. Never throws. */
export function tellEnd({ events, oom }: ProcessEventContext, followed: FollowedProcess): void {
  const { execId, process, beganNs, record } = followed
  const killsBefore = record.oomKills
  const tell = async (exit: ExitRecord) => {
    // The kernel counts an out-of-memory kill before the process ends, but the agent may not have read the count yet.
    await Promise.allSettled([exit.exitCode === 0 || oom.look(record.key), process.starting])
    events.addExit({
      containerId: record.id,
      execId,
      pid: process.pid,
      status: exit.exitCode,
      signal: exit.signal ?? 0,
      oomKilled: record.oomKills > killsBefore,
      startedAtMs: events.unixMsOf(beganNs),
      endedAtMs: events.unixMsOf(exit.reapedAtNs),
      resources: {
        userTimeUs: exit.userTimeUs,
        systemTimeUs: exit.systemTimeUs,
        maxResidentKib: exit.maxRssKib,
      },
    })
  }
  process.exit.then(tell, () => {})
}
