import { AgentError, messageOf } from '../../../base/errors.ts'
import { Any } from '../../../gen/google/protobuf/any.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { Payload } from '../../../gen/state/host/migration.ts'
import { kind, pack, unpack } from './kind.ts'
import { keysOf, type MachineFacts, restoredPlugs } from './machine-facts.ts'
import { restorePod, type SavedPod, savePod } from './pod.ts'
import { diskReservations, saveDisks } from './scsi.ts'
import { saveShares, shareReservations } from './share.ts'
import { restoreVm, type SavedVm, saveVm } from './vm.ts'
import { saveVpci } from './vpci.ts'

const KIND = kind('migration', 1, Payload)

/** A record of the registry has 4 MiB at most, and so has each answer of an agent. */
const MAX_ENVELOPE_BYTES = 16 << 20

/** All that this host knows of a machine, as bytes. Throws RESOURCE_EXHAUSTED when that is more than it would read. */
export function saveInstance(facts: MachineFacts): Uint8Array {
  const reserved = { disks: diskReservations(facts), shares: shareReservations(facts) }
  const staged = keysOf(facts, ({ disk, persistentMemory, share, nic }) =>
    [disk, persistentMemory, share, nic].some((each) => each !== undefined),
  )
  const vm = saveVm(facts, {
    disks: saveDisks(facts, reserved.disks),
    vpci: saveVpci(facts),
    shares: saveShares(facts, reserved.shares),
    staged: new Set(staged),
  })
  const { savedMs } = facts
  const bytes = Any.encode(pack(KIND, { savedMs, vm, pods: [savePod(facts, reserved)] })).finish()
  if (bytes.length <= MAX_ENVELOPE_BYTES) return bytes
  throw new AgentError(
    'RESOURCE_EXHAUSTED',
    `envelope: ${bytes.length} bytes, want at most ${MAX_ENVELOPE_BYTES}`,
  )
}

/** What this host knew of a saved machine. */
export interface RestoredInstance extends Pick<SavedVm, 'streams' | 'rings' | 'compatibility'> {
  readonly savedMs: bigint
  /** What the record of the machine's next instance takes over, as it was. */
  readonly record: Pick<InstanceRecord, Recorded> & Pick<SavedVm, 'properties' | 'specification'>
  /** Keys of devices that were being plugged in. */
  readonly plugging: readonly string[]
  readonly devices: Pick<SavedVm, 'disks' | 'vpci' | 'shares'>
  readonly pod: SavedPod
}

type Recorded =
  | ('properties' | 'specification' | 'document' | 'current' | 'reason' | 'createdMs' | 'cid' | 'bootId')
  | ('reboots' | 'resets' | 'nextPort' | 'leaving' | 'leavingMs' | 'snapshots' | 'layers' | 'lastLayer')

/**
 * Reads what {@link saveInstance} has written. Throws FAILED_PRECONDITION with `source` and the field for what is damaged, and
 * for a payload of a type or version that this host does not know, wherever it is.
 */
export function restoreInstance(bytes: Uint8Array, source: string): RestoredInstance {
  const { savedMs, vm: vmAny, pods } = unpack(KIND, anyIn(bytes, source), source)
  const vm = restoreVm(vmAny, `${source}: vm`)
  const [podAny, ...others] = pods
  if (others.length > 0)
    throw new AgentError('FAILED_PRECONDITION', `${source}: pods: ${pods.length}, want one`)
  const pod = restorePod(podAny, `${source}: pods[0]`)
  const { properties, specification, document, current, reason, createdMs, cid, bootId } = vm
  const { reboots, resets, nextPort, streams, rings, compatibility, disks, vpci, shares } = vm
  const { snapshots, layers, lastLayer } = disks
  const plugs = restoredPlugs({ ...disks.disks, ...shares.shares, ...pod.network.endpoints })
  const otherTimes = Object.entries(vm.leavingMs).filter(([, time]) => time !== 0n)
  return {
    savedMs,
    record: {
      ...{ properties, specification, document, current, reason, createdMs, cid, bootId },
      ...{ reboots, resets, nextPort, snapshots, layers, lastLayer },
      leaving: [...plugs.leaving, ...Object.keys(vm.leavingMs)],
      leavingMs: { ...plugs.leavingMs, ...Object.fromEntries(otherTimes) },
    },
    plugging: plugs.plugging,
    ...{ streams, rings, compatibility, devices: { disks, vpci, shares }, pod },
  }
}

function anyIn(bytes: Uint8Array, source: string): Any {
  if (bytes.length > MAX_ENVELOPE_BYTES) {
    const text = `${source}: ${bytes.length} bytes, want at most ${MAX_ENVELOPE_BYTES}`
    throw new AgentError('FAILED_PRECONDITION', text)
  }
  try {
    return Any.decode(bytes)
  } catch (error) {
    throw new AgentError('FAILED_PRECONDITION', `${source}: damaged: ${messageOf(error)}`, { cause: error })
  }
}
