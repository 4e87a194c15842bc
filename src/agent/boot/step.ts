import type { Logger } from '../../base/log.ts'
import type { NetworkRecord } from '../../handlers/network/network-record.ts'
import type { Os } from '../../os/os.ts'
import type { AgentConfig } from '../../settings/settings.ts'

export interface BootContext {
  readonly os: Pick<
    Os,
    'scratch' | 'blockDevices' | 'clock' | 'files' | 'mounts' | 'network' | 'system' | 'tools' | 'uevents'
  >
  readonly config: AgentConfig
  readonly log: Logger
  readonly networkRecord: NetworkRecord
  /** The environment of this process; a step may set a variable. */
  readonly environment: Record<string, string | undefined>
}

/** `done`: the step changed something; `already`: it found everything in place. */
export type StepOutcome = 'done' | 'already'

export function outcomeOf(parts: readonly StepOutcome[]): StepOutcome {
  return parts.includes('done') ? 'done' : 'already'
}
