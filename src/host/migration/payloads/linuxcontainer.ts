import { AgentError } from '../../../base/errors.ts'
import { isWithin } from '../../../base/paths.ts'
import type { Any } from '../../../gen/google/protobuf/any.ts'
import type { Container } from '../../../gen/microvm/agent/v1/introspection.ts'
import { Payload } from '../../../gen/state/host/linuxcontainer.ts'
import type { Payload as Process } from '../../../gen/state/host/process.ts'
import type { GuestFacts } from './ask-guest.ts'
import { kind, pack, unpack } from './kind.ts'
import { restoreProcess, saveProcess } from './process.ts'
import { stageOf } from './stages.ts'

const KIND = kind('linuxcontainer', 1, Payload)

/** The storages that disks and shares provide, by their mount points. */
export interface Reserved {
  readonly disks: Readonly<Record<string, unknown>>
  readonly shares: Readonly<Record<string, unknown>>
}

/** A container with its processes by their exec ids. */
export type SavedContainer = Omit<Payload, 'processes'> & {
  readonly processes: Readonly<Record<string, Process>>
}

export function saveContainer(guest: GuestFacts, container: Container, { disks, shares }: Reserved): Any {
  const { containerId, state, bundle, storages, vfioDevices } = container
  const own = guest.processes.filter((process) => process.containerId === containerId)
  const processes = own.map((process) => {
    // A message decoded to an object cannot have it as a key.
    if (process.execId === '__proto__')
      throw new AgentError('FAILED_PRECONDITION', `container ${containerId}: exec id __proto__: reserved`)
    return [process.execId, saveProcess(guest, container, process)] as const
  })
  return pack(KIND, {
    ...{ id: containerId, stage: stageOf('container', state), ioRetryMs: guest.sandbox.streamGraceMs },
    layers: layersOf(guest, bundle, { disks, shares }),
    diskReservations: storages.filter((mountPoint) => Object.hasOwn(disks, mountPoint)),
    shareReservations: storages.filter((mountPoint) => Object.hasOwn(shares, mountPoint)),
    vpciDevices: [...vfioDevices],
    processes: Object.fromEntries(processes),
  })
}

/** The storages in the bundle, and the one of a disk or a share that its root is a mount of. */
function layersOf(
  { mounts: { mounts, storages } }: GuestFacts,
  bundle: string,
  reserved: Reserved,
): string[] {
  const root = mounts.find(({ mountPoint }) => mountPoint === `${bundle}/rootfs`)
  const own = storages.filter(({ mountPoint, device, source }) => {
    if (bundle !== '' && isWithin(mountPoint, bundle)) return true
    const isReserved = Object.hasOwn(reserved.disks, mountPoint) || Object.hasOwn(reserved.shares, mountPoint)
    return isReserved && (device || source) === root?.source
  })
  return own.map(({ mountPoint }) => mountPoint)
}

export function restoreContainer(any: Any | undefined, where: string): SavedContainer {
  const payload = unpack(KIND, any, where)
  const processes = Object.entries(payload.processes).map(
    ([execId, each]) =>
      [execId, restoreProcess(each, `${where}.processes[${JSON.stringify(execId)}]`)] as const,
  )
  return { ...payload, processes: Object.fromEntries(processes) }
}
