import { withTimeout } from '../base/abort.ts'
import { AgentError, messageOf } from '../base/errors.ts'
import { truncate } from '../base/truncate.ts'
import type { Clock } from '../os/clock.ts'
import type { SeenEvents } from './seen-events.ts'

const LISTED_CANDIDATES = 32

/** The longest part of the text, so that the whole stays below the 8 KiB that gRPC clients accept in a trailer. */
const PIECE_CHARACTERS = 128

/** Listing the candidates may hang, because sysfs may be the reason of the timeout. */
const CANDIDATES_MS = 500

export interface FailedWait {
  readonly timeoutMs: number
  readonly description: string
  /** What the last finished probe did not find; undefined when no probe has finished. */
  readonly missing: string | undefined
  /** How long the last probe has been stuck in the kernel; undefined when it has finished. */
  readonly stuckMs: number | undefined
  readonly events: SeenEvents
  /** The outcome of the last rescan by the kernel; undefined when there was none. */
  readonly rescan: string | undefined
  readonly candidates: (() => Promise<readonly string[]>) | undefined
  readonly driverFailures: readonly string[]
}

/** Never rejects. */
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
