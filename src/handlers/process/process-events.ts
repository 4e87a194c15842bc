import type { ExitRecord } from '../../os/supervisor/supervisor.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { ContainerProcess } from './process.ts'

/** What telling of processes needs. */
export interface ProcessEventDependencies {
  readonly events: EventLog
  readonly oom: Pick<OomEvents, 'look'>
}

/** A process whose end is to be told. */
export interface FollowedProcess {
  readonly containerId: string
  /** Empty for the first process. */
  readonly execId: string
  readonly process: Pick<ContainerProcess, 'pid' | 'exit' | 'starting'>
  /** When it began, in nanoseconds of CLOCK_BOOTTIME. */
  readonly beganNs: bigint
  /** The record of its container. */
  readonly record: { readonly key: string; readonly oomKills: bigint }
}

/** Has the event log tell how a process ends. Never throws. */
export function tellEnd({ events, oom }: ProcessEventDependencies, followed: FollowedProcess): void {
  const { containerId, execId, process, beganNs, record } = followed
  const killsBefore = record.oomKills
  const tell = async (exit: ExitRecord) => {
    // The kernel counts a kill before the process ends; the agent may not have looked yet.
    await Promise.allSettled([exit.exitCode === 0 || oom.look(record.key), process.starting])
    events.addExit({
      ...{ containerId, execId, pid: process.pid, status: exit.exitCode, signal: exit.signal ?? 0 },
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
