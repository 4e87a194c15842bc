import type { NetworkRecord } from '../../handlers/network/network-record.ts'
import type { Quiesce } from '../../handlers/quiesce/quiesce.ts'
import type { SandboxContext } from '../../handlers/sandbox/context.ts'
import type { Feature } from './capabilities.ts'
import type { Events } from './events.ts'

export interface IntrospectionContext {
  readonly sandbox: SandboxContext
  readonly quiesce: Pick<Quiesce, 'frozen'>
  readonly network: NetworkRecord
  readonly events: Events
  /** How often the agent was started again since the boot. */
  readonly restarts: number
  /** When this agent was started, on the clock of `Clock.monotonicMs`. */
  readonly startedMs: number
  readonly features: () => Promise<readonly Feature[]>
  readonly programs: readonly string[]
}
