import type { MemAgentConfig } from '../handlers/guest/mem-agent/mem-agent.ts'
import type { AgentConfig } from '../settings/settings.ts'

export function memAgentConfig(config: AgentConfig): MemAgentConfig {
  return {
    enabled: config.memAgentEnable,
    reclaim: {
      disabled: config.memAgentMemcgDisable,
      swap: config.memAgentMemcgSwap,
      swappinessMax: config.memAgentMemcgSwappinessMax,
      periodSecs: config.memAgentMemcgPeriodSecs,
      periodPsiPercentLimit: config.memAgentMemcgPeriodPsiPercentLimit,
      evictionPsiPercentLimit: config.memAgentMemcgEvictionPsiPercentLimit,
      evictionRunAgingCountMin: config.memAgentMemcgEvictionRunAgingCountMin,
    },
    compact: {
      disabled: config.memAgentCompactDisable,
      periodSecs: config.memAgentCompactPeriodSecs,
      periodPsiPercentLimit: config.memAgentCompactPeriodPsiPercentLimit,
      psiPercentLimit: config.memAgentCompactPsiPercentLimit,
      secMax: config.memAgentCompactSecMax,
      order: config.memAgentCompactOrder,
      threshold: config.memAgentCompactThreshold,
      forceTimes: config.memAgentCompactForceTimes,
    },
  }
}
