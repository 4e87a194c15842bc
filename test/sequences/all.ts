import { goRuntime } from './go-runtime.ts'
import { runtimeRs } from './runtime-rs.ts'
import type { Ending, Sequence, Surroundings } from './sequence.ts'
import { FRAMINGS } from './wires.ts'

type SequenceIn = (surroundings: Surroundings, ending: Ending) => Sequence

const SEQUENCES: readonly { readonly caller: string; readonly sequenceIn: SequenceIn }[] = [
  { caller: 'the Go runtime', sequenceIn: goRuntime },
  { caller: 'runtime-rs', sequenceIn: runtimeRs },
]

/** A sequence over one framing. */
export type Replay = (typeof REPLAYS)[number]

/** Every sequence over every framing. */
export const REPLAYS = SEQUENCES.flatMap((sequence) => FRAMINGS.map((framing) => ({ ...sequence, framing })))
