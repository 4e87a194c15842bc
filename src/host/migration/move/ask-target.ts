import { abortable } from '../../../base/abort.ts'
import { AgentError } from '../../../base/errors.ts'
import type { GrpcConnection } from '../../../client/connection/grpc-connection.ts'
import { EnsureVmRequest, type GetVmRequest, type Vm } from '../../../gen/microvm/controller/v1/controller.ts'
import { File_Access, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import {
  type MigrationProtocol_Qemu_Disk as Disk,
  HypervisorDefinition,
  type HypervisorID,
  LeaseMode,
} from '../../../gen/vm.ts'
import { clientFor } from '../../../rpc/client.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import { runningOf } from '../../instance/documents/document-record.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { withoutVolumes } from '../../instance/leases/check-lease.ts'
import { nodeSizes } from '../../instance/snapshots/layer-nodes.ts'
import { diskNode } from '../../instance/snapshots/layers.ts'
import type { HostFacts, OutsideFile } from '../manifest.ts'
import { outsideFacts } from '../saved-folder.ts'
import { contentField, type MoveController, type MoveHost } from './move-host.ts'
import { placeNeeds } from './place-needs.ts'
import { type Agreed, agreedOn, offers } from './protocol.ts'

interface Told {
  readonly host: MoveHost
  readonly us: HypervisorID
  readonly facts: HostFacts
}

/** Tells the controller of the machine, and that this host runs it. */
export async function announce(instance: MachineInstance, told: Told): Promise<void> {
  await told.host.controller.ensureVm(await vmOf(instance, told))
}

/** What this host says of the machine, with the volumes as the controller knows them. */
export async function vmOf(instance: MachineInstance, { host, us, facts }: Told): Promise<EnsureVmRequest> {
  const specification = specificationOf(instance)
  const cpuModel = namedCpu(instance.record) ?? (facts.cpu === '' ? '' : 'host')
  const needs = { memoryMib: specification.board?.memoryMib ?? 0n, cpuModel }
  const { mode = LeaseMode.LM_STORAGE_LOCKING, ttlMs = 0 } = instance.record.properties?.lease ?? {}
  const place = placeNeeds(withoutVolumes(specification, instance.record), facts)
  const settings = {
    ...{ specification, leaseMode: mode, leaseTtlMs: BigInt(ttlMs) },
    needs: { ...needs, ...place },
  }
  const volumes = await knownVolumes(host.controller, { namespace: us.namespace, name: us.vmName })
  return EnsureVmRequest.fromPartial({ us, settings, volumes })
}

/**
 * The CPU model of the machine that runs, which is the same on each host that has it whole; undefined for the host's own. It is empty
 * where the machine lacks some of it: then a host may lack that too, and QEMU decides.
 */
export function namedCpu({ document }: Pick<InstanceRecord, 'document'>): string | undefined {
  if (document === undefined || document.current === '') return undefined
  const { features, match, model } = runningOf({ document }).machine.cpu
  if (match !== 'exact') return undefined
  return Object.values(features).includes(false) ? '' : model
}

/** None of a VM that the controller does not know. */
export async function knownVolumes(
  controller: Pick<MoveController, 'getVm'>,
  vm: GetVmRequest,
): Promise<Vm['volumes']> {
  const known = await controller.getVm(vm).catch((error) => {
    if (error instanceof AgentError && error.code === 'NOT_FOUND') return undefined
    throw error
  })
  return known?.volumes ?? []
}

/** What QEMU reads at its start and the disks, as they are now. */
export async function filesOf(
  instance: MachineInstance,
  signal: AbortSignal,
): Promise<readonly OutsideFile[]> {
  const named = filesNamedBy(withoutVolumes(specificationOf(instance), instance.record), instance.record)
  return await abortable(Promise.all(named.map(outsideFacts)), signal)
}

/** What has to be the same at a target. */
export function filesNamedBy(
  { backends, board }: Specification,
  { document }: Pick<InstanceRecord, 'document'>,
): readonly Pick<OutsideFile, 'backend' | 'field' | 'path'>[] {
  const boot = (['kernel', 'initrd', 'vmlinux'] as const).flatMap((name) =>
    board?.[name] ? [{ field: `board.${name}`, backend: '', path: board[name] }] : [],
  )
  const disks = Object.entries(backends).flatMap(([backend, { file }]) =>
    file === undefined ? [] : [{ field: `backends.${backend}.file.path`, backend, path: file.path }],
  )
  const contents = Object.entries(backends).flatMap(([backend, { content }]) =>
    content === undefined || document !== undefined
      ? []
      : [{ field: contentField(backend), backend: '', path: content.path }],
  )
  return [...boot, ...contents, ...disks]
}

interface Question {
  readonly connection: GrpcConnection
  readonly files: readonly OutsideFile[]
  /** Of the target. */
  readonly name: string
  readonly us: HypervisorID
  /** The target keeps nothing, and tells no endpoint. */
  readonly dryRun?: true
}

/** Throws FAILED_PRECONDITION for a target that has dropped a constraint. A disk that is copied has its layers in it. */
export async function startMigration(
  instance: MachineInstance,
  { connection, dryRun, files, name, us }: Question,
  limits: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<Agreed> {
  const disks = await disksOf(instance, files, limits.signal)
  const offered = [...offers(disks)]
  const hypervisor = clientFor(HypervisorDefinition, connection)
  const request = { supportedMigrationProtocol: offered, us, dryRun: dryRun ?? false }
  const { migrationProtocol: answer } = await hypervisor.startMigration(request, limits)
  const agreed = agreedOn(name, { offered, answer, dryRun })
  return {
    ...agreed,
    disks: agreed.disks.map((disk) => ({ ...disk, node: diskNode(instance.record, disk.key) })),
  }
}

/** The disks that can be copied, with the bytes that the guest sees. */
async function disksOf(
  instance: MachineInstance,
  files: readonly OutsideFile[],
  signal: AbortSignal,
): Promise<readonly Disk[]> {
  const { backends } = specificationOf(instance)
  const sizes = await nodeSizes(instance.machine().qmp, signal)
  return files.flatMap(({ backend: key, path }): readonly Disk[] => {
    if (key === '' || backends[key]?.file?.access !== File_Access.READ_WRITE) return []
    const bytes = sizes.get(diskNode(instance.record, key))
    return bytes === undefined ? [] : [{ key, path, sizeBytes: BigInt(bytes) }]
  })
}
