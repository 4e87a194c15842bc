import type { Any } from '../../../gen/google/protobuf/any.ts'
import type { Payload as Network } from '../../../gen/state/host/network.ts'
import { Payload, Stage } from '../../../gen/state/host/pod.ts'
import { kind, pack, unpack } from './kind.ts'
import { type Reserved, restoreContainer, type SavedContainer, saveContainer } from './linuxcontainer.ts'
import type { MachineFacts } from './machine-facts.ts'
import { restoreNetwork, saveNetwork } from './network.ts'
import { stageOf } from './stages.ts'

const KIND = kind('pod', 1, Payload)

export interface SavedPod extends Omit<Payload, 'network' | 'containers'> {
  readonly network: Network
  readonly containers: readonly SavedContainer[]
}

/** The network of a guest without a sandbox is in it too. */
export function savePod(facts: MachineFacts, reserved: Reserved): Any {
  const { guest } = facts
  const { state = '', id = '' } = guest?.sandbox ?? {}
  return pack(KIND, {
    stage: state === '' ? Stage.NONE : stageOf('sandbox', state),
    id,
    network: saveNetwork(facts),
    containers: guest?.containers.map((container) => saveContainer(guest, container, reserved)) ?? [],
    refusedCalls: [...(guest?.refusedCalls ?? [])],
  })
}

export function restorePod(any: Any | undefined, where: string): SavedPod {
  const payload = unpack(KIND, any, where)
  return {
    ...payload,
    network: restoreNetwork(payload.network, `${where}.network`),
    containers: payload.containers.map((each, index) =>
      restoreContainer(each, `${where}.containers[${index}]`),
    ),
  }
}
