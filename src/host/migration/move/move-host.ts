import { AgentError } from '../../../base/errors.ts'
import type { GrpcConnection } from '../../../client/connection/grpc-connection.ts'
import type {
  EnsureVmRequest,
  ForecastTargetRequest,
  GetVmRequest,
  Host,
  Vm,
} from '../../../gen/microvm/controller/v1/controller.ts'
import type {
  EnsureMigrationTargetRequest,
  EnsureMigrationTargetResponse,
  HypervisorID,
  MigrationSwitchoverRequest,
} from '../../../gen/vm.ts'
import type { OnlyVm } from '../../instance/moving/only-vm.ts'
import { pathOf } from '../../spec/component-path.ts'
import { type BulkSettings, bulkSettings } from '../bulk/settings.ts'

/** The controller of this host's machines. Calls reject with UNAVAILABLE when none of its endpoints answers. */
export interface MoveController {
  ensureVm(request: EnsureVmRequest): Promise<Vm>
  ensureMigrationTarget(request: EnsureMigrationTargetRequest): Promise<EnsureMigrationTargetResponse>
  /** Changes nothing. */
  forecastTarget(request: ForecastTargetRequest): Promise<EnsureMigrationTargetResponse>
  /** Rejects with FAILED_PRECONDITION when another than `them` is authoritative. */
  switchover(request: MigrationSwitchoverRequest): Promise<void>
  getVm(request: GetVmRequest): Promise<Vm>
  listHosts(): Promise<readonly Host[]>
}

/** This host among others. */
export interface MoveHost {
  readonly id: string
  /** Of a hypervisor, which has no other machine. */
  readonly only?: OnlyVm | undefined
  /** HOST:PORT, as others reach it. */
  readonly endpoint: string
  /** Where QEMU's channels listen. */
  readonly address: string
  /** Whether other hosts reach it at that address. */
  readonly isDirect: boolean
  /** Paths of PEM files. */
  readonly identity: { readonly ca: string; readonly cert: string; readonly key: string }
  readonly controller: MoveController
  /** Connects to the host with this id. */
  readonly dial: (endpoint: string, id: string, signal: AbortSignal) => Promise<GrpcConnection>
  /** Tells controllers at once whether this host takes no more machines; the next daemon knows it, too. */
  readonly drain: (isDraining: boolean) => Promise<void>
  /** Greater than any that this host has used. */
  readonly nextRunId: () => Promise<bigint>
  /** Fires when the daemon stops. */
  readonly closing: AbortSignal
  readonly settings: MoveSettings
}

export interface MoveSettings {
  readonly bulk: BulkSettings
  /** How long an instance awaits a machine. */
  readonly awaitMs: number
  /** From the answer to StartMigration until the handover begins. */
  readonly beginMs: number
  /** Until QEMU waits at the target. */
  readonly readyMs: number
  /** From the end of the handover until the target must run, for the source. */
  readonly runsMs: number
  /** How long the target tries to become authoritative. */
  readonly switchoverMs: number
  /** After that, how long a controller may take to carry out a try. */
  readonly lateMs: number
  /** Between two tries. */
  readonly retryMs: number
  /** How long a whole move may take. */
  readonly moveMs: number
}

export const MOVE_SETTINGS: MoveSettings = {
  bulk: bulkSettings(),
  awaitMs: 600_000,
  beginMs: 30_000,
  readyMs: 60_000,
  runsMs: 20_000,
  switchoverMs: 15_000,
  lateMs: 60_000,
  retryMs: 500,
  moveMs: 86_400_000,
}

/** Of the Handover stream. */
export const HANDOVER_VERSION = 2

/** A port of this host as others reach it: HOST:PORT. */
export function reachedAt({ endpoint }: Pick<MoveHost, 'endpoint'>, port: number): string {
  return endpoint.replace(/\d+$/, String(port))
}

/** Of a file that QEMU reads at its start. */
export function contentField(backend: string): string {
  return pathOf('backends', backend, 'content', 'path')
}

export function isSame(one: HypervisorID | undefined, other: HypervisorID): boolean {
  return one !== undefined && one.podName === other.podName && one.runId === other.runId
}

export function refused(text: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', text)
}
