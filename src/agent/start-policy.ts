import { neverAborted } from '../base/abort.ts'
import type { Logger } from '../base/log.ts'
import { openLineFile } from '../os/files/line-file.ts'
import type { LinuxOs } from '../os/linux-os.ts'
import { loadPolicyEngines } from '../os/policy/load-policy-engines.ts'
import type { AgentConfig } from '../settings/settings.ts'
import type { StateStore } from '../state/state-store.ts'
import type { BootGate } from './boot/gate.ts'
import { INPUT_LOG, InputLog } from './policy/input-log.ts'
import { Policy } from './policy/policy.ts'
import { readPolicyFile } from './policy/policy-file.ts'

export interface PolicyParts {
  readonly config: Pick<AgentConfig, 'policyFile'>
  readonly os: Pick<LinuxOs, 'files' | 'scratch' | 'supervisor'>
  readonly log: Logger
  readonly gate: BootGate
  readonly agentFolder: string
  readonly state: StateStore
}

/** Restores or loads the policy, which must be in force before the socket opens. */
export async function startPolicy(parts: PolicyParts): Promise<Policy> {
  const { agentFolder, config, os, log, gate, state } = parts
  let engines: ReturnType<typeof loadPolicyEngines>
  let isLoaded = false
  // The boot mounts the folder of the file.
  const openInputLog = () => gate.wait(neverAborted).then(() => openLineFile(INPUT_LOG))
  const policy = new Policy({
    // Loaded at first use, because most agents never need it.
    engines: () => {
      if (!isLoaded) engines = loadPolicyEngines(agentFolder)
      isLoaded = true
      return engines
    },
    log,
    inputLog: log.isLogged('debug') ? new InputLog(openInputLog, log) : undefined,
    state,
  })
  try {
    if (await policy.restore()) return policy
  } catch (error) {
    // Without the policy the next agent would let every call pass, so vminit must not start one.
    await os.supervisor.endWithAgent()
    throw error
  }
  const file = await readPolicyFile(os, config.policyFile)
  if (file !== undefined) await policy.load(file)
  return policy
}
