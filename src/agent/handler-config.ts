import type { MemAgentConfig } from '../handlers/guest/mem-agent/mem-agent.ts'
import type { RuntimeChoice, SandboxConfig } from '../handlers/sandbox/sandbox-config.ts'
import type { AgentConfig } from '../settings/settings.ts'
import { STATE_FOLDER } from './boot/state-folder.ts'
import type { AgentArguments } from './config/arguments.ts'

/** Bundles, mount points and shared folders. */
export const SHARED_ROOT = '/run/kata-containers'

/** The agent's state, and the files of the OCI runtime and its runs. */
export const OWN_ROOT = '/run/microvm-agent'

/** Which file systems Quiesce freezes: in a guest all; below another init, disks may belong to others. */
export function freezeChoice({ init }: AgentArguments): {
  readonly ownPaths: readonly string[]
  readonly below: string | undefined
} {
  const ownPaths = ['/', '/tmp', SHARED_ROOT, OWN_ROOT, STATE_FOLDER]
  return { ownPaths, below: init ? undefined : SHARED_ROOT }
}

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

export function sandboxConfig(config: AgentConfig, given: AgentArguments): SandboxConfig {
  return {
    runtime: runtimeChoice(config.runtime),
    containerVsock: config.containerVsock,
    containerPipeSizeBytes: config.containerPipeSizeBytes,
    streamGraceMs: config.streamGraceMs,
    streamResume: config.streamResume,
    outputReplayBytes: config.outputReplayBytes,
    sharedRoot: SHARED_ROOT,
    sandboxNamespaceDir: '/run/sandbox-ns',
    runtimeRoot: OWN_ROOT,
    restarted: given.channel.restarts > 0,
  }
}

/** The paths of the two runtimes in Debian's packages. */
const KNOWN: Readonly<Record<RuntimeChoice['kind'], string>> = {
  runc: '/usr/sbin/runc',
  crun: '/usr/bin/crun',
}

/** `setting` is a name or the absolute path of a binary. */
export function runtimeChoice(setting: string): RuntimeChoice {
  if (setting === 'runc' || setting === 'crun') return { kind: setting, binary: KNOWN[setting] }
  const name = setting.slice(setting.lastIndexOf('/') + 1)
  return { kind: name.startsWith('crun') ? 'crun' : 'runc', binary: setting }
}
