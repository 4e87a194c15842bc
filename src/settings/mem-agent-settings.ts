import { LONGEST_TIMER_MS } from '../base/abort.ts'
import {
  agentSetting,
  boolean,
  count,
  flag,
  numberIn,
  type Setting,
  type SettingType,
} from './setting-types.ts'

const percent = numberIn(0, 100)

/** Seconds that one timer can wait for. */
const periodSecs = numberIn(1, Math.floor(LONGEST_TIMER_MS / 1000))

export const MEM_AGENT_SETTINGS = {
  memAgentEnable: agentSetting('mem_agent_enable', {
    type: flag,
    default: false,
    doc: 'Reclaim and compaction of memory. On the kernel command line it stands before the other `mem_agent` keys.',
  }),
  memAgentMemcgDisable: memAgent('memcg_disable', boolean, false, 'No reclaim.'),
  memAgentMemcgSwap: memAgent(
    'memcg_swap',
    boolean,
    false,
    'Reclaim may swap, where the guest has swap space.',
  ),
  memAgentMemcgSwappinessMax: memAgent(
    'memcg_swappiness_max',
    numberIn(0, 200),
    50,
    'The swappiness of a reclaim that may swap.',
  ),
  memAgentMemcgPeriodSecs: memAgent('memcg_period_secs', periodSecs, 600, 'Seconds between two reclaims.'),
  memAgentMemcgPeriodPsiPercentLimit: memAgent(
    'memcg_period_psi_percent_limit',
    percent,
    1,
    'A container with more pressure (%) than this during the period is left alone.',
  ),
  memAgentMemcgEvictionPsiPercentLimit: memAgent(
    'memcg_eviction_psi_percent_limit',
    percent,
    1,
    'Pressure (%) in a container above which the reclaim from it stops.',
  ),
  memAgentMemcgEvictionRunAgingCountMin: memAgent(
    'memcg_eviction_run_aging_count_min',
    count,
    3,
    'Periods in a row without pressure before a container’s memory is reclaimed.',
  ),
  memAgentCompactDisable: memAgent('compact_disable', boolean, false, 'No compaction.'),
  memAgentCompactPeriodSecs: memAgent(
    'compact_period_secs',
    periodSecs,
    600,
    'Seconds between two looks at the free memory.',
  ),
  memAgentCompactPeriodPsiPercentLimit: memAgent(
    'compact_period_psi_percent_limit',
    percent,
    1,
    'Nothing is compacted after a period with more pressure (%) in the guest than this.',
  ),
  memAgentCompactPsiPercentLimit: memAgent(
    'compact_psi_percent_limit',
    percent,
    5,
    'Pressure (%) in the guest above which a compaction stops.',
  ),
  memAgentCompactSecMax: memAgent('compact_sec_max', periodSecs, 300, 'Longest compaction in seconds.'),
  memAgentCompactOrder: memAgent(
    'compact_order',
    numberIn(0, 10),
    9,
    'Free blocks of less than 2^order pages are fragments.',
  ),
  memAgentCompactThreshold: memAgent(
    'compact_threshold',
    count,
    1024,
    'Memory is compacted when fragments have grown by so many pages since the last compaction.',
  ),
  memAgentCompactForceTimes: memAgent(
    'compact_force_times',
    count,
    Number.MAX_SAFE_INTEGER,
    'Periods without a compaction after which one is forced, whatever the fragments.',
  ),
} as const

function memAgent<T>(name: string, type: SettingType<T>, fallback: T, doc: string): Setting<T> {
  return agentSetting(`mem_agent_${name}`, { type, default: fallback, doc, after: 'agent.mem_agent_enable' })
}
