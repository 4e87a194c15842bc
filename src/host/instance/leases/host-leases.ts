import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { EnsureInstanceRequest, Lease } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { HypervisorID } from '../../../gen/vm.ts'
import type { Clock } from '../../../os/clock.ts'
import type { WantedInstance } from '../documents/wanted-instance.ts'
import type { PacketFilters } from '../filters/nft.ts'
import type { MachineInstance } from '../instance.ts'
import type { Machine } from '../machine/machine.ts'
import { instanceIdOf, namespaceOf, type OnlyVm } from '../moving/only-vm.ts'
import { isOnItsWay } from '../moving/undecided.ts'
import { checkedLease, isFull } from './check-lease.ts'
import { type LeaseController, MachineLease } from './machine-lease.ts'
import { fencedTap } from './network-fence.ts'
import { terminate } from './terminate.ts'

export interface LeaseHost {
  /** Of this host, among those of its controllers. */
  readonly id: string
  readonly only?: OnlyVm | undefined
  readonly controller: LeaseController
  /** Greater than any that this host has used. */
  readonly nextRunId: () => Promise<bigint>
  readonly clock: Pick<Clock, 'boottimeNs' | 'sleep'>
  readonly filters: PacketFilters
  readonly log: Logger
}

/** Between the tries of a removal: the first pause, each of which is twice the one before, and the last, of half an hour. */
const REMOVE_PAUSE_MS = 1000
const MOST_REMOVE_PAUSE_MS = 2_048_000

/** The leases of the machines of this host. */
export interface HostLeases {
  /** The lease that a new instance is to have. Throws INVALID_ARGUMENT or FAILED_PRECONDITION naming the field. */
  check(
    request: Pick<EnsureInstanceRequest, 'properties' | 'document' | 'migrationTarget' | 'specification'>,
  ): Lease | undefined
  /** Makes the next run of the instance known, and gives it its lease. Resolves with what is to be recorded of it. */
  begin(instance: MachineInstance, next: Readonly<InstanceRecord>): Promise<Partial<InstanceRecord>>
  /** Follows what is said of a machine that has been started or taken in again. */
  follow(instance: MachineInstance, machine: Machine): void
  /** The instance has been removed, or could not be made. */
  forget(instance: MachineInstance): void
}

export function openLeases(host: LeaseHost): HostLeases {
  const leaseOf = (instance: MachineInstance, record: Readonly<InstanceRecord>, isRegistered: boolean) =>
    new MachineLease(
      {
        ...host,
        // A move that was taken back has changed it; that of a start is not recorded yet.
        us: () => hypervisorOf(record.runId < instance.record.runId ? instance.record : record, host),
        isOnItsWay: () => isOnItsWay(instance),
        settings: settingsOf(record),
        log: host.log.with({ instance: instance.key }),
        terminate: (reason) => terminate(instance, reason),
      },
      { isRegistered },
    )
  return {
    check: wantedLease,
    begin: async (instance, next) => {
      const lease = next.properties?.lease
      // A target becomes the hypervisor by a switchover.
      if (lease === undefined || next.awaiting !== undefined) return {}
      const run = { instanceId: instanceIdOf(next, host.only), runId: await host.nextRunId() }
      const begun = leaseOf(instance, { ...next, ...run }, false)
      // A controller may know it although its answer was lost.
      instance.context.lease = begun
      await begun.register().catch((error) => {
        const isAway = error instanceof AgentError && error.code === 'UNAVAILABLE'
        if (!isAway || isFull(lease)) throw error
        host.log.warn('machine not made known to a controller', { error: messageOf(error) })
      })
      return run
    },
    follow: (instance, machine) => {
      const { context, record } = instance
      if (record.properties?.lease === undefined) return
      const lease = context.lease ?? leaseOf(instance, record, true)
      if (context.lease === undefined) {
        context.lease = lease
        if (isFull(record.properties.lease)) void takeIn(instance, lease, host)
      }
      lease.follow()
      void machine.gone.then(() => {
        lease.machineHasEnded()
        if (context.lease === lease) context.lease = undefined
      })
    },
    forget: ({ context, record }) => {
      if (record.properties?.lease === undefined || record.awaiting !== undefined) return
      // A run that could not be recorded.
      const begun = context.lease?.us
      const us = begun !== undefined && begun.runId > record.runId ? begun : hypervisorOf(record, host)
      if (us.podName !== `${host.id}/`) void removeVm(us, host)
    },
  }
}

/** Tries again while no controller answers. Never rejects. */
async function removeVm(us: HypervisorID, { controller, log }: LeaseHost): Promise<void> {
  for (let pauseMs = REMOVE_PAUSE_MS; ; pauseMs *= 2) {
    try {
      return await controller.removeVm(us)
    } catch (error) {
      // It has moved away.
      if (error instanceof AgentError && error.code === 'FAILED_PRECONDITION') return
      log.warn('controller not told of the removal', { vm: us.vmName, error: messageOf(error) })
      const isAway = error instanceof AgentError && error.code === 'UNAVAILABLE'
      if (!isAway || pauseMs > MOST_REMOVE_PAUSE_MS) return
    }
    await delay(pauseMs, undefined, { ref: false })
  }
}

/** Of a daemon without controllers. */
export const NO_LEASES: HostLeases = {
  check: (request) => {
    if (wantedLease(request) === undefined) return undefined
    return withoutControllers()
  },
  begin: async (_, { properties }) => (properties?.lease === undefined ? {} : withoutControllers()),
  follow: () => {},
  forget: () => {},
}

/** What a call of EnsureInstance wants, with its lease. */
export function withLease(wanted: WantedInstance, lease: Lease | undefined): WantedInstance {
  return {
    ...wanted,
    differenceTo: (record) => {
      const present = record.properties?.lease
      const isEqual = present?.mode === lease?.mode && present?.ttlMs === lease?.ttlMs
      return isEqual ? wanted.differenceTo(record) : 'properties.lease'
    },
  }
}

function withoutControllers(): never {
  throw new AgentError(
    'FAILED_PRECONDITION',
    'properties.lease: this daemon has no controllers, want them in [host] of its configuration',
  )
}

function wantedLease({
  document,
  migrationTarget,
  properties,
  specification,
}: Parameters<HostLeases['check']>[0]): Lease | undefined {
  const lease = checkedLease(properties?.lease)
  const isMade = [document, migrationTarget, specification].some((init) => init !== undefined)
  if (lease === undefined || isMade) return lease
  throw new AgentError(
    'INVALID_ARGUMENT',
    'properties.lease: want it with a specification or a document only',
  )
}

async function takeIn(instance: MachineInstance, lease: MachineLease, { log }: LeaseHost): Promise<void> {
  const { holder, folder } = instance.context
  const taps = instance.recorded.steps.flatMap(({ step, words: [key = '', , interfaceName = ''] }) =>
    step === 'fence' ? [fencedTap(folder, key, interfaceName)] : [],
  )
  try {
    if (holder !== undefined) await lease.takeIn(holder, taps)
  } catch (error) {
    // The holder ends the machine with its lease.
    log.error('lease not kept', { instance: instance.key, error: messageOf(error) })
  }
}

/** Names the present run of an instance on this host. */
function hypervisorOf(
  { instanceId, properties, runId }: Readonly<InstanceRecord>,
  { id, only }: Pick<LeaseHost, 'id' | 'only'>,
): HypervisorID {
  return HypervisorID.fromPartial({
    vmName: properties?.key ?? '',
    namespace: namespaceOf(properties?.tenant, only),
    podName: `${id}/${instanceId}`,
    runId,
  })
}

function settingsOf({ properties, specification }: Readonly<InstanceRecord>) {
  const { mode, ttlMs = 0 } = properties?.lease ?? {}
  return {
    ...(specification && { specification }),
    ...(mode !== undefined && { leaseMode: mode }),
    leaseTtlMs: BigInt(ttlMs),
    needs: { memoryMib: BigInt(specification?.board?.memoryMib ?? 0) },
  }
}
