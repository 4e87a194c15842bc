import { withTimeout } from '../base/abort.ts'
import { AgentError, messageOf } from '../base/errors.ts'
import { truncate } from '../base/truncate.ts'
import type { Clock } from '../os/clock.ts'
import type { SeenEvents } from './seen-events.ts'

/** Most candidates that are listed. */
const LISTED_CANDIDATES = 32

/** Longest piece: with all that is listed the text stays below the 8 KiB that gRPC clients take in a trailer. */
const PIECE_CHARACTERS = 128

/** How long sysfs may take to show the candidates, for it may be what the wait was held by. */
const CANDIDATES_MS = 500

/** A wait whose time is over. */
export interface FailedWait {
  readonly timeoutMs: number
  /** What was waited for. */
  readonly description: string
  /** What the last look that ended did not find; undefined when none has ended. */
  readonly missing: string | undefined
  /** How long the kernel has held the last look, where that has not ended. */
  readonly heldMs: number | undefined
  readonly events: SeenEvents
  /** How the kernel's own look for the device ended; undefined when it was not asked for one. */
  readonly rescan: string | undefined
  /** What sysfs shows of the kind. */
  readonly candidates: (() => Promise<readonly string[]>) | undefined
  /** What was said about drivers that could not be loaded. */
  readonly driverFailures: readonly string[]
}

/** The error of a failed wait: what was waited for, what is missing, and what was seen meanwhile. Never rejects. */
export async function timedOut(clock: Clock, failed: FailedWait): Promise<AgentError> {
  const { timeoutMs, description, missing = 'answer from sysfs', heldMs, events, rescan } = failed
  const { candidates, driverFailures } = failed
  const parts = [
    `Timeout after ${timeoutMs / 1000}s waiting for uevent of ${piece(description)}: no ${piece(missing)}`,
    ...(heldMs === undefined ? [] : [`the last look at sysfs has not ended after ${heldMs / 1000}s`]),
    `meanwhile ${came(events)}`,
    ...(rescan === undefined ? [] : [`rescan by the kernel: ${piece(rescan)}`]),
    ...(candidates === undefined ? [] : [`sysfs shows ${await shown(candidates, clock)}`]),
    ...(driverFailures.length === 0 ? [] : [`drivers not loaded: ${driverFailures.map(piece).join(', ')}`]),
  ]
  return new AgentError('INTERNAL', parts.join('; '))
}

function came({ count, concerning, remembered }: SeenEvents): string {
  if (count === 0) return 'no uevent came'
  const listed = remembered.map(piece).join(', ')
  const some = remembered.length < count ? 'among them ' : ''
  return `${count} uevents came, of which ${concerning} may concern it: ${some}${listed}`
}

async function shown(candidates: () => Promise<readonly string[]>, clock: Clock): Promise<string> {
  const late = () => new AgentError('INTERNAL', `nothing within ${CANDIDATES_MS} ms`)
  const names = await withTimeout(clock, CANDIDATES_MS, candidates(), late).catch((error) => [
    messageOf(error),
  ])
  if (names.length === 0) return 'nothing of the kind'
  const more = names.length > LISTED_CANDIDATES ? [`${names.length - LISTED_CANDIDATES} more`] : []
  return [...names.slice(0, LISTED_CANDIDATES).map(piece), ...more].join(', ')
}

function piece(text: string): string {
  return truncate(text, PIECE_CHARACTERS)
}
