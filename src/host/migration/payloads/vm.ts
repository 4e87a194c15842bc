import { AgentError } from '../../../base/errors.ts'
import type { Any } from '../../../gen/google/protobuf/any.ts'
import { State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { Payload as Disks } from '../../../gen/state/host/scsi.ts'
import type { Payload as Shares } from '../../../gen/state/host/share.ts'
import { Payload, Stage } from '../../../gen/state/host/vm.ts'
import type { Payload as Vpci } from '../../../gen/state/host/vpci.ts'
import { kind, pack, unpack } from './kind.ts'
import { type MachineFacts, plugStage } from './machine-facts.ts'
import { restoreDisks } from './scsi.ts'
import { restoreShares } from './share.ts'
import { restoreVpci } from './vpci.ts'

const KIND = kind('vm', 1, Payload)

const STAGES: Readonly<Record<State, Stage | undefined>> = {
  [State.STATE_UNSPECIFIED]: undefined,
  [State.AWAITING]: Stage.AWAITING,
  [State.TERMINATED]: Stage.TERMINATED,
  [State.CREATING]: Stage.CREATING,
  [State.PAUSED]: Stage.PAUSED,
  [State.RUNNING]: Stage.RUNNING,
  [State.STOPPING]: Stage.STOPPING,
  [State.STOPPED]: Stage.STOPPED,
  [State.REMOVING]: Stage.REMOVING,
}

/** The payloads of devices. */
interface DevicePayloads {
  readonly disks: Any
  readonly vpci: Any
  readonly shares: Any
  /** Keys of devices that have a stage in a payload of their own. */
  readonly staged: ReadonlySet<string>
}

export function saveVm(facts: MachineFacts, { staged, ...devices }: DevicePayloads): Any {
  const { record, streams, rings, compatibility } = facts
  const { properties, specification, document, current, reason, cid, bootId, reboots } = record
  const { createdMs, resets, nextPort, leaving } = record
  const stage = STAGES[current]
  if (stage === undefined) throw new AgentError('INTERNAL', `state: ${current}, want a known one`)
  const others = leaving
    .filter((key) => !staged.has(key))
    .map((key) => [key, plugStage(facts, key).leavingMs ?? 0n] as const)
  return pack(KIND, {
    ...{ stage, reason, properties, specification, document, compatibility },
    confidentialConfig: undefined,
    ...{ cid, bootId, reboots, createdMs, resets: [...resets], leavingMs: Object.fromEntries(others) },
    ...{ nextPort, streams: [...streams], rings: [...rings] },
    ...devices,
  })
}

export interface SavedVm extends Omit<Payload, 'disks' | 'vpci' | 'shares' | 'stage'> {
  readonly properties: NonNullable<Payload['properties']>
  readonly specification: NonNullable<Payload['specification']>
  readonly current: InstanceRecord['current']
  readonly disks: Disks
  readonly vpci: Vpci
  readonly shares: Shares
}

export function restoreVm(any: Any | undefined, where: string): SavedVm {
  const { stage, ...payload } = unpack(KIND, any, where)
  const refuse = (text: string) => new AgentError('FAILED_PRECONDITION', `${where}.${text}`)
  const { confidentialConfig, properties, specification } = payload
  if (confidentialConfig !== undefined)
    throw refuse(
      'confidential_config: ConfidentialConfig is refused: the host cannot save memory that it cannot read',
    )
  if (properties === undefined) throw refuse('properties: missing')
  if (specification === undefined) throw refuse('specification: missing')
  const current = Object.values(State).find((state) => STAGES[state] === stage)
  if (current === undefined) throw refuse(`stage: ${stage}, want a known one`)
  return {
    ...{ ...payload, properties, specification, current },
    disks: restoreDisks(payload.disks, `${where}.disks`),
    vpci: restoreVpci(payload.vpci, `${where}.vpci`),
    shares: restoreShares(payload.shares, `${where}.shares`),
  }
}
