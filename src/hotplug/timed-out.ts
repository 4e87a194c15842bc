import { withTimeout } from '../base/abort.ts'
import { AgentError, messageOf } from '../base/errors.ts'
import { truncate } from '../base/truncate.ts'
import type { Clock } from '../os/clock.ts'
import type { SeenEvents } from './seen-events.ts'

/** The largest number of candidates that are listed. */
const LISTED_CANDIDATES = 32

/** The longest part of the text, which keeps the whole below the 8 KiB that gRPC clients accept in a trailer. */
const PIECE_CHARACTERS = 128

/** How long listing the candidates may take: sysfs may be what held the wait. */
const CANDIDATES_MS = 500

/** A wait that has timed out. */
export interface FailedWait {
  readonly timeoutMs: number
  /** The device that was waited for. */
  readonly description: string
  /** What the last finished probe did not find; undefined when none has finished. */
  readonly missing: string | undefined
  /** How long the last probe has been stuck in the kernel; undefined when it has finished. */
  readonly stuckMs: number | undefined
  readonly events: SeenEvents
  /** The outcome of the last rescan by the kernel; undefined when there was none. */
  readonly rescan: string | undefined
  /** Lists the devices of the same kind in sysfs. */
  readonly candidates: (() => Promise<readonly string[]>) | undefined
  /** The messages about drivers that could not be loaded. */
  readonly driverFailures: readonly string[]
}

/** The error of a timed-out wait: the device, what is missing, and the events during the wait. Never rejects. */
export async function timedOut(clock: Clock, failed: FailedWait): Promise<AgentError> {
  const { timeoutMs, description, missing = 'answer from sysfs', stuckMs, events, rescan } = failed
  const { candidates, driverFailures } = failed
  const parts = [
    `Timeout after ${timeoutMs / 1000}s waiting for uevent of ${short(description)}: no ${short(missing)}`,
    ...(stuckMs === undefined ? [] : [`the last probe of sysfs has not ended after ${stuckMs / 1000}s`]),
    `during the wait ${describeEvents(events)}`,
    ...(rescan === undefined ? [] : [`rescan by the kernel: ${short(rescan)}`]),
    ...(candidates === undefined ? [] : [`sysfs shows ${await describeCandidates(candidates, clock)}`]),
    ...(driverFailures.length === 0 ? [] : [`drivers not loaded: ${driverFailures.map(short).join(', ')}`]),
  ]
  return new AgentError('INTERNAL', parts.join('; '))
}

function describeEvents({ count, matching, remembered }: SeenEvents): string {
  if (count === 0) return 'no uevents'
  const listed = remembered.map(short).join(', ')
  const some = remembered.length < count ? 'among them ' : ''
  return `${count} uevents, of which ${matching} match: ${some}${listed}`
}

async function describeCandidates(
  candidates: () => Promise<readonly string[]>,
  clock: Clock,
): Promise<string> {
  const late = () => new AgentError('INTERNAL', `nothing within ${CANDIDATES_MS} ms`)
  const names = await withTimeout(clock, CANDIDATES_MS, candidates(), late).catch((error) => [
    messageOf(error),
  ])
  if (names.length === 0) return 'no such devices'
  const more = names.length > LISTED_CANDIDATES ? [`${names.length - LISTED_CANDIDATES} more`] : []
  return [...names.slice(0, LISTED_CANDIDATES).map(short), ...more].join(', ')
}

function short(text: string): string {
  return truncate(text, PIECE_CHARACTERS)
}
