import type { GrpcConnection } from '../../client/connection/grpc-connection.ts'
import type { MoveRequest, MoveResponse } from '../../gen/microvm/instance/v1/handover.ts'
import type {
  CloneInstanceRequest,
  HostEntry,
  MigrateInstanceRequest,
  MigrateInstanceResponse,
  MigrationTarget,
  Moved,
  SavedInit,
  SavedMachine,
  SuspendInstanceRequest,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import type { StartMigrationRequest, StartMigrationResponse } from '../../gen/vm.ts'
import type { MachineInstance } from './instance.ts'
import type { Caller, OwnerCheck, RemoteHost } from './instances.ts'
import type { SavedStart } from './machine/saved-start.ts'
import type { Timeline } from './record/timeline.ts'

/** A saved machine that was checked, before anything of it starts. */
export interface SavedContent {
  /** What a new instance of it begins with, but its key, tenant, labels, user, and context id. */
  readonly record: Partial<InstanceRecord>
  readonly start: (instance: MachineInstance) => SavedStart
  /** Of a clone: the hardware addresses of its cards, by those that its guest has from before. */
  readonly macs?: ReadonlyMap<string, string>
  /** Since the call. */
  readonly timeline?: Timeline
  /** Of a clone: to be called once the instance is recorded, or is not made. */
  readonly release?: () => void
}

/** What names of templates are like. No other machine is saved under such a name. */
export const TEMPLATE_NAME = /^template-[0-9a-f]{12}$/

export function isOfTemplate({ folder, name }: Pick<SavedInit, 'folder' | 'name'>): boolean {
  return folder === '' && TEMPLATE_NAME.test(name)
}

/** What is kept of a machine with a snapshot of its disks. */
export interface KeepRequest {
  /** Of the snapshot. */
  readonly name: string
  /** A new folder for it. */
  readonly folder: string
  readonly quiesce: boolean
  readonly withoutAgent: boolean
  /** With all that clones are made of, in place of what the instance itself goes back to. */
  readonly isWhole: boolean
  /** The new layers of the disks. */
  readonly layers: {
    /** Keys of the backends that have them. */
    readonly backends: ReadonlySet<string>
    readonly make: () => Promise<void>
    /** The guest stands still for it. */
    readonly putOnTop: () => Promise<void>
  }
}

export interface KeptMemory {
  /** In microseconds. */
  readonly stillUs: bigint
  readonly waitingUs: bigint
  /** The guest had written its file systems down, and its containers stood still. */
  readonly wasAtRest: boolean
}

/** A memory that was kept, checked before anything of it starts. */
export interface KeptContent extends Pick<SavedContent, 'record' | 'start'> {
  readonly folder: string
  readonly id: string
  /** Since the call. */
  readonly timeline: Timeline
}

/** What a source hands over. */
export type HandoverStream = AsyncIterable<MoveRequest>

/** Machines that go to other hosts and come from there (src/host/migration/move). */
export interface HostMoves {
  /** Moves the machine, and ends the instance. Throws with the step when it goes on here. To be called in a change. */
  migrate(
    instance: MachineInstance,
    request: MigrateInstanceRequest,
    how: Migrating,
  ): Promise<MigrateInstanceResponse>
  /** What the record of an instance that awaits a machine begins with. */
  awaiting(target: MigrationTarget): Promise<Partial<InstanceRecord>>
  /** Removes an instance that awaits a machine when none has come in time. */
  watchAwaiting(instance: MachineInstance): void
  /** Agrees on a way to move to the instance. `from` is the host that asks. */
  start(
    instance: MachineInstance,
    request: StartMigrationRequest,
    from: string,
  ): Promise<StartMigrationResponse>
  /** Throws PERMISSION_DENIED unless the host runs the machine that the instance awaits. */
  checkSource(instance: MachineInstance, from: string): Promise<void>
  /** The key of the instance that a handover is for, by its first message. Takes what has been agreed on. */
  begin(requests: HandoverStream, from: RemoteHost): Promise<Arrival>
  /** Connects to the host where a machine is that was here. */
  readonly dial: (moved: Moved, signal: AbortSignal) => Promise<GrpcConnection>
  /** Resolves once no move is under way. */
  settled(): Promise<void>
  hosts(): Promise<readonly HostEntry[]>
  drain(isDraining: boolean): Promise<void>
}

export interface Migrating {
  /** Fires when the caller has left, which cancels the move until the machine is handed over. */
  readonly signal: AbortSignal
  readonly inStep: (step: string) => void
  readonly tell: (answer: Partial<MigrateInstanceResponse>) => void
}

/** A handover that has begun. */
export interface Arrival {
  readonly key: string
  /** Takes the machine in, if its owner may have it here. Forgets the instance when that fails. To be called in a change. */
  take(
    instance: MachineInstance,
    send: (answer: Partial<MoveResponse>) => void,
    how: { readonly signal: AbortSignal; readonly checkOwner: OwnerCheck },
  ): Promise<void>
  /** Gives back what the source was promised, also when the machine was never taken in. */
  close(): void
}

/** Machines as files (src/host/migration). */
export interface Moves {
  /** Saves the machine, and ends the instance. To be called in a change. */
  suspend(instance: MachineInstance, request: SuspendInstanceRequest, caller: Caller): Promise<SavedMachine>
  /** Keeps the memory of a machine with its layers, and lets it go on, also when that fails. To be called in a change. */
  keep(instance: MachineInstance, request: KeepRequest, caller: Pick<Caller, 'inStep'>): Promise<KeptMemory>
  /** Where a machine is saved that goes on, while clones of it are made. The next daemon removes it. */
  passingOf(tenant: string): Pick<KeepRequest, 'name' | 'folder'>
  /** Removes what was saved there, as far as it is there. The clones go on. */
  endPassing(folder: string): Promise<void>
  /** Ends what holds the memory for clones of the saved machine, unless one is being made, or `isUsed`. */
  freeMemory(id: string, isUsed: () => boolean): Promise<void>
  /** The name of a saved clone whose disk stands on the file at `path`; undefined where there is none. */
  savedOn(path: string): Promise<string | undefined>
  /** Throws FAILED_PRECONDITION naming the file of a memory that is missing or damaged, or what this host lacks. */
  openKept(folder: string): Promise<KeptContent>
  /** Starts the stopped instance from a memory, which stays, and waits until its guest is ready. To be called in a change. */
  revert(instance: MachineInstance, content: KeptContent, caller: Pick<Caller, 'inStep'>): Promise<void>
  /** Throws FAILED_PRECONDITION naming the file that is missing or damaged, or what this host lacks. */
  open(init: SavedInit, tenant: string): Promise<SavedContent>
  /** The same for a clone, for which the saved machine stays. It is refused of a guest that has no agent, unless it is wanted so. */
  openClone(
    init: SavedInit,
    tenant: string,
    how: Pick<CloneInstanceRequest, 'withoutAgent'>,
  ): Promise<SavedContent>
  /** Starts a new instance, and waits until its guest is ready. To be called in a change. */
  resume(instance: MachineInstance, content: SavedContent, init: SavedInit, caller: Caller): Promise<void>
  /** Throws NOT_FOUND unless a machine is saved so, and FAILED_PRECONDITION when it has become an instance. */
  refuseGone(init: Pick<SavedInit, 'folder' | 'name'>, tenant: string): Promise<void>
  /** Tells the guest of a resumed machine of its restore, unless it is ready. A clone that fails is removed. To be called in a change. */
  repair(instance: MachineInstance): Promise<void>
  /** Finishes or undoes what an earlier daemon has begun. Returns whether the instance is gone. To be called in a change. */
  settle(instance: MachineInstance, signal?: AbortSignal): Promise<boolean>
  /** Of one tenant, or of all. */
  list(tenant: string | undefined): Promise<readonly SavedMachine[]>
  remove(name: string, tenant: string): Promise<void>
  /** Undefined where the configuration does not say who this host is. */
  readonly hosts?: HostMoves | undefined
  /** In Prometheus text form. */
  metrics(): string
}
