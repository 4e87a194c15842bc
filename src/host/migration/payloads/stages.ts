import { AgentError } from '../../../base/errors.ts'
import { Stage as ContainerStage } from '../../../gen/state/host/linuxcontainer.ts'
import { Stage as PodStage } from '../../../gen/state/host/pod.ts'
import { Reservation_Stage } from '../../../gen/state/host/scsi.ts'

/** The stages that stand for the agent's states: its words in capitals. */
const STAGES = {
  sandbox: PodStage,
  container: ContainerStage,
  storage: Reservation_Stage,
} as const

/** Throws FAILED_PRECONDITION for a state that this host does not know. */
export function stageOf<What extends keyof typeof STAGES>(
  what: What,
  state: string,
): (typeof STAGES)[What][keyof (typeof STAGES)[What]] {
  const stages = STAGES[what]
  const name = state.toUpperCase()
  if (Object.hasOwn(stages, name)) return stages[name as keyof (typeof STAGES)[What]]
  throw new AgentError(
    'FAILED_PRECONDITION',
    `${what}: the guest's agent tells the state "${state}", which is unknown`,
  )
}
