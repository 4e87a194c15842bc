import { LONGEST_TIMER_MS } from '../../../base/abort.ts'
import { AgentError } from '../../../base/errors.ts'
import type { MemAgentCompactConfig, MemAgentMemcgConfig } from '../../../gen/agent.ts'

/** Percentages are shares of the time in which a task stalled for memory or I/O (PSI). */
export interface ReclaimSettings {
  readonly disabled: boolean
  /** Whether reclaim may move anonymous memory to swap space. */
  readonly swap: boolean
  /** The `swappiness` of a reclaim that may swap, 0 to 200. */
  readonly swappinessMax: number
  readonly periodSecs: number
  /** No reclaim follows a period with more pressure in the container's cgroup. */
  readonly periodPsiPercentLimit: number
  /** A reclaim stops when the pressure in the cgroup since its begin exceeds this limit. */
  readonly evictionPsiPercentLimit: number
  /** The number of periods in a row below the limit that must precede a reclaim. */
  readonly evictionRunAgingCountMin: number
}

export interface CompactSettings {
  readonly disabled: boolean
  readonly periodSecs: number
  /** No compaction follows a period with more pressure in the guest. */
  readonly periodPsiPercentLimit: number
  /** A compaction stops when the pressure in the guest since its begin exceeds this limit. */
  readonly psiPercentLimit: number
  /** Seconds after which a compaction stops. */
  readonly secMax: number
  /** Free blocks of less than 2^order pages are fragments. */
  readonly order: number
  /** A compaction begins when fragments have grown by so many pages since the last one. */
  readonly threshold: number
  /** The number of periods without a compaction after which one is forced. */
  readonly forceTimes: number
}

const LONGEST_SECS = Math.floor(LONGEST_TIMER_MS / 1000)

/** The least and greatest values of fields. docs/reference/settings.md lists those of the settings. */
const RANGES: Readonly<Record<string, readonly [number, number]>> = {
  swappiness_max: [0, 200],
  period_secs: [1, LONGEST_SECS],
  period_psi_percent_limit: [0, 100],
  eviction_psi_percent_limit: [0, 100],
  compact_psi_percent_limit: [0, 100],
  compact_sec_max: [1, LONGEST_SECS],
  compact_order: [0, 10],
}

/** The settings with the fields of a request. Throws INVALID_ARGUMENT with the name of a field that is out of range. */
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

/** Values above 2^53-1, such as 2^64-1 for never, become 2^53-1. */
function checked(field: string, value: number | bigint | undefined): number | undefined {
  if (value === undefined) return undefined
  const [least, greatest] = RANGES[field] ?? [0, Number.POSITIVE_INFINITY]
  if (value < least || value > greatest) {
    throw new AgentError('INVALID_ARGUMENT', `${field}: ${value}, want ${least} to ${greatest}`)
  }
  return Math.min(Number(value), Number.MAX_SAFE_INTEGER)
}
