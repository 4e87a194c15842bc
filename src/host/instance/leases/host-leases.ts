import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { EnsureInstanceRequest, Lease } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { HypervisorID } from '../../../gen/vm.ts'
import type { Clock } from '../../../os/clock.ts'
import type { WantedInstance } from '../documents/wanted-instance.ts'
import type { PacketFilters } from '../filters/nft.ts'
import type { MachineInstance } from '../instance.ts'
import type { Machine } from '../machine/machine.ts'
import { hypervisorOf, instanceIdOf, type OnlyVm } from '../moving/only-vm.ts'
import { isOnItsWay } from '../moving/undecided.ts'
import type { Change, Registry } from '../registry/registry.ts'
import { checkedLease, isFull, isVolume } from './check-lease.ts'
import { type LeaseController, MachineLease } from './machine-lease.ts'
import { fencedTap } from './network-fence.ts'
import { Removals } from './removals.ts'
import { terminate } from './terminate.ts'

export interface LeaseHost {
  /** Of this host, among those of its controllers. */
  readonly id: string
  readonly only?: OnlyVm | undefined
  readonly controller: LeaseController
  /** Greater than any that this host has used. */
  readonly nextRunId: () => Promise<bigint>
  readonly clock: Pick<Clock, 'boottimeNs' | 'sleep' | 'startTimer'>
  readonly filters: PacketFilters
  readonly registry: Registry
  readonly log: Logger
}

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
  /** What the registry has of an instance from its removal on, until a controller knows of that. */
  removalOf(instance: MachineInstance): readonly Change[]
  /** The instance has been removed, or could not be made. */
  forget(instance: MachineInstance): void
  /** The next daemon tells the controllers what this one has not. */
  close(): void
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
        volumes: volumesOf(record, host.id),
        log: host.log.with({ instance: instance.key }),
        terminate: (reason) => terminate(instance, reason),
      },
      { isRegistered },
    )
  const removals = new Removals(host)
  void removals.goOn()
  return {
    check: wantedLease,
    begin: async (instance, next) => {
      const lease = next.properties?.lease
      // A target becomes the hypervisor by a switchover.
      if (lease === undefined) return {}
      if (next.awaiting !== undefined) {
        if (isFull(lease)) instance.context.lease = leaseOf(instance, next, true)
        return {}
      }
      const run = { instanceId: instanceIdOf(next, host.only), runId: await host.nextRunId() }
      const begun = leaseOf(instance, { ...next, ...run }, false)
      // A controller may know it although its answer was lost.
      instance.context.lease = begun
      await begun.register(instance.ending).catch((error) => {
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
    removalOf: (instance) => {
      const us = lastRun(instance, host)
      return us === undefined ? [] : [removals.row(us)]
    },
    forget: (instance) => {
      const us = lastRun(instance, host)
      if (us !== undefined) void removals.tell(us)
    },
    close: () => removals.close(),
  }
}

/** That a controller may know: one without a lease has been about to move. */
function lastRun({ context, record }: MachineInstance, host: LeaseHost): HypervisorID | undefined {
  if (record.awaiting !== undefined) return undefined
  // A run that could not be recorded.
  const begun = context.lease?.us
  const us = begun !== undefined && begun.runId > record.runId ? begun : hypervisorOf(record, host)
  return us.podName === `${host.id}/` ? undefined : us
}

/** Of a daemon without controllers. */
export const NO_LEASES: HostLeases = {
  check: (request) => {
    if (wantedLease(request) === undefined) return undefined
    return withoutControllers()
  },
  begin: async (_, { properties }) => (properties?.lease === undefined ? {} : withoutControllers()),
  follow: () => {},
  removalOf: () => [],
  forget: () => {},
  close: () => {},
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

/** The files that QEMU would write to, which their hosts serve to the machine of LM_FULL_LEASES. */
function volumesOf({ properties, specification }: Readonly<InstanceRecord>, own: string) {
  const { backends = {} } = specification ?? {}
  return Object.entries(backends).flatMap(([key, backend]) =>
    isVolume(backend, properties?.lease)
      ? [{ key, host: backend.file.host || own, path: backend.file.path }]
      : [],
  )
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
