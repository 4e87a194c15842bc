import { LONGEST_TIMER_MS } from '../../../base/abort.ts'
import { AgentError } from '../../../base/errors.ts'
import type { MemAgentCompactConfig, MemAgentMemcgConfig } from '../../../gen/agent.ts'

/** The settings of reclaim. Percentages are of the time in which a task was stalled for memory or its disk (PSI). */
export interface ReclaimSettings {
  readonly disabled: boolean
  /** Whether reclaim may move anonymous memory to swap space. */
  readonly swap: boolean
  /** The `swappiness` of a reclaim that may swap, 0 to 200. */
  readonly swappinessMax: number
  /** Seconds between two reclaims. */
  readonly periodSecs: number
  /** A container is left alone after a period with more pressure in its cgroup. */
  readonly periodPsiPercentLimit: number
  /** The reclaim from a container stops when there is more pressure in its cgroup since the reclaim began. */
  readonly evictionPsiPercentLimit: number
  /** Periods in a row below the limit that a container must have had. */
  readonly evictionRunAgingCountMin: number
}

/** The settings of compaction. */
export interface CompactSettings {
  readonly disabled: boolean
  /** Seconds between two looks at the free memory. */
  readonly periodSecs: number
  /** Nothing is compacted after a period with more pressure in the guest. */
  readonly periodPsiPercentLimit: number
  /** A compaction stops when there is more pressure in the guest since it began. */
  readonly psiPercentLimit: number
  /** Seconds after which a compaction stops. */
  readonly secMax: number
  /** Free blocks of less than 2^order pages are fragments. */
  readonly order: number
  /** Memory is compacted when fragments have grown by so many pages since the last compaction. */
  readonly threshold: number
  /** Periods without a compaction after which one is forced, whatever the fragments. */
  readonly forceTimes: number
}

const LONGEST_SECS = Math.floor(LONGEST_TIMER_MS / 1000)

/** The least and greatest values of the fields that have such. docs/reference/settings.md shows those of the settings. */
const RANGES: Readonly<Record<string, readonly [number, number]>> = {
  swappiness_max: [0, 200],
  period_secs: [1, LONGEST_SECS],
  period_psi_percent_limit: [0, 100],
  eviction_psi_percent_limit: [0, 100],
  compact_psi_percent_limit: [0, 100],
  compact_sec_max: [1, LONGEST_SECS],
  compact_order: [0, 10],
}

/** The settings with the fields that a request has. Throws INVALID_ARGUMENT with the name of a field out of range. */
export function changedReclaim(settings: ReclaimSettings, request: MemAgentMemcgConfig): ReclaimSettings {
  return {
    disabled: request.disabled ?? settings.disabled,
    swap: request.swap ?? settings.swap,
    swappinessMax: checked('swappiness_max', request.swappinessMax) ?? settings.swappinessMax,
    periodSecs: checked('period_secs', request.periodSecs) ?? settings.periodSecs,
    periodPsiPercentLimit:
      checked('period_psi_percent_limit', request.periodPsiPercentLimit) ?? settings.periodPsiPercentLimit,
    evictionPsiPercentLimit:
      checked('eviction_psi_percent_limit', request.evictionPsiPercentLimit) ??
      settings.evictionPsiPercentLimit,
    evictionRunAgingCountMin:
      checked('eviction_run_aging_count_min', request.evictionRunAgingCountMin) ??
      settings.evictionRunAgingCountMin,
  }
}

/** The same for compaction. */
export function changedCompact(settings: CompactSettings, request: MemAgentCompactConfig): CompactSettings {
  return {
    disabled: request.disabled ?? settings.disabled,
    periodSecs: checked('period_secs', request.periodSecs) ?? settings.periodSecs,
    periodPsiPercentLimit:
      checked('period_psi_percent_limit', request.periodPsiPercentLimit) ?? settings.periodPsiPercentLimit,
    psiPercentLimit:
      checked('compact_psi_percent_limit', request.compactPsiPercentLimit) ?? settings.psiPercentLimit,
    secMax: checked('compact_sec_max', request.compactSecMax) ?? settings.secMax,
    order: checked('compact_order', request.compactOrder) ?? settings.order,
    threshold: checked('compact_threshold', request.compactThreshold) ?? settings.threshold,
    forceTimes: checked('compact_force_times', request.compactForceTimes) ?? settings.forceTimes,
  }
}

/** The value of a field; one above 2^53-1, such as 2^64-1 for never, becomes 2^53-1. */
function checked(field: string, value: number | bigint | undefined): number | undefined {
  if (value === undefined) return undefined
  const [least, greatest] = RANGES[field] ?? [0, Number.POSITIVE_INFINITY]
  if (value < least || value > greatest) {
    throw new AgentError('INVALID_ARGUMENT', `${field}: ${value}, want ${least} to ${greatest}`)
  }
  return Math.min(Number(value), Number.MAX_SAFE_INTEGER)
}
