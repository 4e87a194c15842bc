import { AgentError } from '../../base/errors.ts'
import type {
  FenceVolumeRequest,
  FenceVolumeResponse,
  MoveRequest,
  MoveResponse,
} from '../../gen/microvm/instance/v1/handover.ts'
import type {
  AllocatePortRequest,
  AttachRequest,
  AttachResponse,
  ChangeStateRequest,
  CloneInstanceRequest,
  EnsureInstanceRequest,
  ExpandRequest,
  ExpandResponse,
  HostEntry,
  Instance,
  ListSnapshotsResponse,
  MigrateInstanceRequest,
  MigrateInstanceResponse,
  MigrationTarget,
  PlugRequest,
  RemoveSnapshotRequest,
  RemoveSnapshotResponse,
  ReplaceBackendRequest,
  RevertRequest,
  SavedMachine,
  Snapshot,
  SnapshotRequest,
  Specification,
  Stream,
  SuspendInstanceRequest,
  UnplugRequest,
  WatchInstancesRequest,
  WatchInstancesResponse,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { StartMigrationRequest, StartMigrationResponse } from '../../gen/vm.ts'

/** Who calls. A tenant sees its own instances only. */
export interface Caller {
  /** Undefined for the administrator. */
  readonly tenant: string | undefined
  /** Fires when the caller hangs up or its deadline is over. A change that has begun goes on. */
  readonly signal: AbortSignal
  /** The name of a call with an idempotency key, among those of all callers. */
  readonly callKey?: string
  /** The call was begun before: an earlier daemon died in it, or it had an error that passes. */
  readonly isRepeated?: boolean
  /** When that was, in milliseconds since 1970. */
  readonly begunMs?: number | undefined
  /** Names the present step of the call. */
  readonly inStep: (step: string) => void
}

export function notFound(key: string): AgentError {
  return new AgentError('NOT_FOUND', `instance ${key}: not found`)
}

export type OwnerCheck = (owner: string, specification: Specification) => Promise<void>

/** The host that has passed a caller of an agent on, because the machine has left it, and how many hosts have done so. */
export interface PassedOn {
  readonly host: string
  readonly hosts: number
}

/** A host that calls. */
export interface RemoteHost {
  readonly id: string
  readonly address: string
}

/** What is asked about machines that go to other hosts, and what other hosts ask. `from` is the host that calls, or its id. */
export interface MoveCalls {
  /** Ends with the answer that has where the machine is. */
  migrate(request: MigrateInstanceRequest, caller: Caller): AsyncIterable<MigrateInstanceResponse>
  hosts(): Promise<readonly HostEntry[]>
  /** Whether this host takes no more machines. */
  drain(isDraining: boolean): Promise<void>
  /** Makes an instance that awaits a machine, or finds it. */
  ensureTarget(request: EnsureInstanceRequest, target: MigrationTarget, caller: Caller): Promise<Instance>
  /** Removes an instance that still awaits a machine, for a controller or for the host that its controller says runs the machine. */
  giveUpTarget(key: string, from: string | undefined): Promise<void>
  startMigration(request: StartMigrationRequest, from: string): Promise<StartMigrationResponse>
  handover(
    requests: AsyncIterable<MoveRequest>,
    from: RemoteHost,
    how: { readonly signal: AbortSignal; readonly checkOwner: OwnerCheck },
  ): AsyncIterable<MoveResponse>
  /** Lets the machine of another host alone write to a disk that is here. */
  fenceVolume(request: FenceVolumeRequest, from: string, signal: AbortSignal): Promise<FenceVolumeResponse>
  /** Resolves once no move is under way. */
  settled(): Promise<void>
}

/**
 * The instances of this host. All methods reject with an AgentError; NOT_FOUND for an instance that the caller may not
 * see, ALREADY_EXISTS for `ensure` of its key. The service has checked keys, tenant and paths. Each change may be asked
 * for again after the daemon's death, so one that finds its outcome answers it: `unplug` of a device that is gone succeeds.
 */
export interface Instances {
  /** `checkOwner` is for a saved machine. */
  ensure(request: EnsureInstanceRequest, caller: Caller, checkOwner?: OwnerCheck): Promise<Instance>
  expand(request: ExpandRequest, caller: Caller): Promise<ExpandResponse>
  get(key: string, caller: Caller): Promise<Instance>
  list(caller: Caller): readonly Instance[]
  watch(request: WatchInstancesRequest, caller: Caller): AsyncIterable<WatchInstancesResponse>
  changeState(request: ChangeStateRequest, caller: Caller): Promise<Instance>
  replaceBackend(request: ReplaceBackendRequest, caller: Caller): Promise<Instance>
  plug(request: PlugRequest, caller: Caller): Promise<Instance>
  unplug(request: UnplugRequest, caller: Caller): Promise<Instance>
  snapshot(request: SnapshotRequest, caller: Caller): Promise<Snapshot>
  snapshots(key: string, caller: Caller): Promise<ListSnapshotsResponse>
  /** `checkOwner` throws when the tenant, empty for none, may not use the configuration any more. */
  revert(request: RevertRequest, checkOwner: OwnerCheck, caller: Caller): Promise<Instance>
  removeSnapshot(request: RemoveSnapshotRequest, caller: Caller): Promise<RemoveSnapshotResponse>
  remove(key: string, caller: Caller): Promise<void>
  /** Makes clones of a saved machine, or of one that goes on. When some cannot be made, the others stay, and the error names both. */
  clone(request: CloneInstanceRequest, caller: Caller, checkOwner: OwnerCheck): Promise<readonly Instance[]>
  suspend(request: SuspendInstanceRequest, caller: Caller): Promise<SavedMachine>
  /** Machines that go to other hosts, and come from there. */
  readonly move: MoveCalls
  listSaved(caller: Caller): Promise<readonly SavedMachine[]>
  deleteSaved(name: string, caller: Caller): Promise<void>
  allocatePort(request: AllocatePortRequest, caller: Caller): Promise<Stream>
  attach(request: AttachRequest, caller: Caller): AsyncIterable<AttachResponse>
  streams(key: string, caller: Caller): Promise<readonly Stream[]>
  /** Bytes to and from the agent in the guest, also of a machine that has moved away. Ends when either side does. */
  connectAgent(
    key: string,
    input: AsyncIterable<Uint8Array>,
    caller: Caller,
    passed?: PassedOn,
  ): AsyncIterable<Uint8Array>
  /** Bytes to and from the console. Several callers get the same output; their input is mixed. */
  console(key: string, input: AsyncIterable<Uint8Array>, caller: Caller): AsyncIterable<Uint8Array>
  /** Lines of metrics in Prometheus text form. */
  metrics(): string
  /** Lets go of all instances, which go on without the daemon. */
  close(): Promise<void>
}
