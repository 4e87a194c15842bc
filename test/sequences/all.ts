import { agentCtl } from './agent-ctl.ts'
import { goRuntime } from './go-runtime.ts'
import { runtimeRs } from './runtime-rs.ts'
import type { Ending, Sequence, Surroundings } from './sequence.ts'
import type { Framing } from './wires.ts'

export interface Replay {
  readonly caller: string
  readonly framing: Framing
  readonly sequenceIn: (surroundings: Surroundings, ending: Ending) => Sequence
}

export function replayOf(caller: string, framing: Framing): Replay {
  const found = REPLAYS.find((replay) => replay.caller === caller && replay.framing === framing)
  if (found === undefined) throw new Error(`${caller} over ${framing}: no such sequence`)
  return found
}

export const REPLAYS: readonly Replay[] = [
  { caller: 'the Go runtime', framing: 'ttrpc', sequenceIn: goRuntime },
  { caller: 'the Go runtime', framing: 'grpc', sequenceIn: goRuntime },
  { caller: 'runtime-rs', framing: 'ttrpc', sequenceIn: runtimeRs },
  { caller: 'runtime-rs', framing: 'grpc', sequenceIn: runtimeRs },
  { caller: 'agent-ctl', framing: 'ttrpc', sequenceIn: agentCtl },
]
