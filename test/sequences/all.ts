import { agentCtl } from './agent-ctl.ts'
import { goRuntime } from './go-runtime.ts'
import { runtimeRs } from './runtime-rs.ts'
import type { Ending, Sequence, Surroundings } from './sequence.ts'
import type { Framing } from './wires.ts'

/** A sequence over one framing. */
export interface Replay {
  readonly caller: string
  readonly framing: Framing
  readonly sequenceIn: (surroundings: Surroundings, ending: Ending) => Sequence
}

/** The shims' sequences over either framing, agent-ctl's over its own. */
export const REPLAYS: readonly Replay[] = [
  { caller: 'the Go runtime', framing: 'ttrpc', sequenceIn: goRuntime },
  { caller: 'the Go runtime', framing: 'grpc', sequenceIn: goRuntime },
  { caller: 'runtime-rs', framing: 'ttrpc', sequenceIn: runtimeRs },
  { caller: 'runtime-rs', framing: 'grpc', sequenceIn: runtimeRs },
  { caller: 'agent-ctl', framing: 'ttrpc', sequenceIn: agentCtl },
]
