import type { NetworkRecord } from '../../handlers/network/network-record.ts'
import type { SandboxContext } from '../../handlers/sandbox/context.ts'
import type { Feature } from './capabilities.ts'
import type { Events } from './events.ts'

/** What the agent tells about itself from. */
export interface IntrospectionDependencies {
  /** The sandbox with its containers, storages, events and kernel. */
  readonly sandbox: SandboxContext
  readonly network: NetworkRecord
  readonly events: Events
  /** How often the agent was started again since the boot. */
  readonly restarts: number
  /** When this agent was started, on the clock of `Clock.monotonicMs`. */
  readonly startedMs: number
  /** Parts of the agent that depend on its settings and its image. */
  readonly features: () => Promise<readonly Feature[]>
  /** Paths of the programs that the agent runs. */
  readonly programs: readonly string[]
}
