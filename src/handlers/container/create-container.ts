import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { CreateContainerRequest } from '../../gen/agent.ts'
import type { Spec } from '../../gen/oci.ts'
import type { ProcessState } from '../../gen/state/container.ts'
import type { RequestedDevice } from '../../oci/cdi/requested-devices.ts'
import { checkSpec } from '../../oci/check/check-spec.ts'
import {
  type ContainerSpec,
  cgroupsPath,
  completeSpec,
  containerSpec,
  type GuestChoices,
} from '../../oci/container-spec.ts'
import type { OnDeviation } from '../../oci/deviation.ts'
import { checkDevicePaths } from '../../oci/guest-devices.ts'
import { supportedSpec } from '../../oci/guest-support.ts'
import { normalizeSpec } from '../../oci/normalize-spec.ts'
import { nofileIn, nofileOf } from '../../oci/rlimits.ts'
import { hasController, usesCgroupV2 } from '../../os/cgroup/hierarchies.ts'
import type { Os } from '../../os/os.ts'
import { parseStartNs } from '../../os/process/proc-stat.ts'
import type { Call } from '../../state/request.ts'
import { type Cgroup, cgroupAt } from '../cgroup/cgroup.ts'
import type { ContainersCgroup } from '../cgroup/containers-cgroup.ts'
import type { DeviceHandlers } from '../device/devices.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { connectStdio, type LaunchContext, prepareLaunch } from '../process/launch.ts'
import { logDeviation } from '../process/log-deviation.ts'
import { newProcess } from '../process/owner.ts'
import type { ContainerProcess } from '../process/process.ts'
import { type ProcessEventContext, tellEnd } from '../process/process-events.ts'
import { ProcessTable } from '../process/process-table.ts'
import { programOf } from '../process/signal-process.ts'
import type { PortConnections } from '../stdio/port-connections.ts'
import type { StorageHandlers } from '../storage/storage.ts'
import { type Bundle, bundleOf, mountRoot, removeBundle, StoredSpec } from './bundle.ts'
import type { ContainerParts } from './container.ts'
import type { ContainerRecord } from './container-record.ts'
import { guestSupport } from './guest-support.ts'
import type { GuestSysctls } from './guest-sysctls.ts'
import type { ContainerRegistry } from './registry.ts'
import type { ActiveSandbox, SandboxLookup } from './sharing/active-sandbox.ts'
import { checkSharedMounts, cloneSharedMounts } from './sharing/shared-mounts.ts'
import { pinPidNamespace } from './sharing/shared-pid-namespace.ts'

export interface CreateContext extends LaunchContext, ProcessEventContext {
  readonly os: Os
  readonly config: LaunchContext['config'] & { readonly sharedRoot: string }
  readonly sandboxState: SandboxLookup
  readonly containers: ContainerRegistry
  readonly containersCgroup: Pick<ContainersCgroup, 'path' | 'limit' | 'removeParents'>
  readonly runtime: Pick<OciRuntime, 'create' | 'discardRun' | 'erase' | 'seccomp'>
  readonly storage: Pick<StorageHandlers, 'attach' | 'release' | 'isUsed' | 'mountPointsOf'>
  readonly devices: DeviceHandlers
  readonly sysctls: GuestSysctls
}

interface Creation {
  readonly dependencies: CreateContext
  readonly record: ContainerRecord
  readonly request: CreateContainerRequest
  readonly onDeviation: OnDeviation
  readonly call: Call
  readonly sandbox: ActiveSandbox
  readonly bundle: Bundle
  readonly cdiDevices: readonly RequestedDevice[]
  /** Undo of steps for a failed creation only. */
  readonly onFailure: UndoList
  /** Undo of steps for a failed creation and for the removal of the container. */
  readonly onRemove: UndoList
}

/** CreateContainer: the first process awaits its start. A failed step, an abort or a removal undoes all steps before it. */
export async function createContainer(
  dependencies: CreateContext,
  requested: CreateContainerRequest,
  call: Call,
): Promise<void> {
  const { os, log, config, containers, containersCgroup, devices, sandboxState, storage } = dependencies
  const id = requested.containerId
  checkContainerId(id)
  const onDeviation = logDeviation(log, 'warn', { containerId: id })
  const request = {
    ...requested,
    OCI: requested.OCI && normalizeSpec(requested.OCI, onDeviation),
  }
  const complete = completeSpec(request.OCI)
  checkSpec(complete)
  checkDevicePaths(complete.linux, devices.updatedPaths(request.devices))
  const cdiDevices = devices.requestedCdiDevices(complete.spec)
  const sandbox = sandboxState.active()
  const cgroupPath = cgroupsPath(complete.linux.CgroupsPath, id, containersCgroup.path)
  const container = containers.add(id, cgroupPath)
  const ending = AbortSignal.any([call.signal, container.creationInterrupted])
  const [onFailure, onRemove] = [new UndoList(log), new UndoList(log)]
  const bundle = bundleOf(config.sharedRoot, id)
  const isMaker = sandbox.pidNamespace.begin(container.record)
  onRemove.add('shared pid namespace', () => sandbox.pidNamespace.gone(id))
  try {
    container.record.save({
      request: call.number,
      createdNs: os.clock.boottimeNs(),
      pidNamespace: isMaker ? sandbox.pidNamespace.path : '',
      storages: storage.mountPointsOf(request.storages),
      hasSharedMounts: request.sharedMounts.length > 0,
    })
    const creation = {
      dependencies,
      record: container.record,
      request,
      onDeviation,
      call: { ...call, signal: ending },
      sandbox,
      bundle,
      cdiDevices,
      onFailure,
      onRemove,
    }
    const { parts, init } = await build(creation)
    ending.throwIfAborted()
    container.publish(parts, init)
    tellEndOf(dependencies, container.record, parts.init)
    sandbox.pidNamespace.made(id, parts.init)
    // Until the record had the process, the files of the run told the next agent of it.
    await dependencies.runtime.discardRun(init.key)
  } catch (error) {
    await onFailure.run()
    await onRemove.run()
    containers.drop(container)
    await containersCgroup.removeParents(cgroupPath, containers.cgroupPaths())
    throw error
  }
}

function tellEndOf(
  dependencies: ProcessEventContext,
  record: ContainerRecord,
  process: ContainerProcess,
): void {
  const { init } = record.fields
  tellEnd(dependencies, { execId: '', process, beganNs: init?.beganNs ?? 0n, record })
}

interface Built {
  readonly parts: ContainerParts
  /** What is recorded of the first process. */
  readonly init: ProcessState
}

async function build(creation: Creation): Promise<Built> {
  const { dependencies, request, call, sandbox, bundle, onFailure, onRemove } = creation
  const { signal } = call
  const { os, log, devices, storage, sysctls } = dependencies
  const { root, process } = completeSpec(request.OCI)
  // Connect first: a host that listens on the ports waits only for these connections.
  const hasTerminal = process.Terminal
  const connections = await connectStdio(dependencies, { ports: request, hasTerminal, onFailure }, call)
  const isV2 = await usesCgroupV2(os)
  checkSharedMounts(request.sharedMounts)
  await os.scratch.makeDirectories(bundle.folder, 0o755)
  onRemove.add('bundle', () => removeBundle(os, bundle))
  const guestDevices = await devices.waitFor(request.devices, signal, (address) =>
    creation.record.save({ vfioDevices: [...creation.record.fields.vfioDevices, address] }),
  )
  onFailure.add('devices', guestDevices.onFailure)
  const deviceEdits = await devices.waitForCdiEdits(creation.cdiDevices, signal)
  await attachStorages(creation)
  const { spec, guestSysctls, startContainer, poststart } = await specFor(
    creation,
    { devices: guestDevices, deviceEdits },
    isV2,
  )
  const { pciAddresses } = guestDevices
  const hooks = { startContainer, poststart }
  creation.record.saveSetUp({ ...hooks, pciAddresses, sysctls: await sysctls.read(guestSysctls) })
  await sysctls.set(guestSysctls, { onFailure, onRemove }, signal)
  if (!storage.isUsed(bundle.rootfs)) await mountRoot(os, bundle, root.Path, onRemove)
  const stored = new StoredSpec(os.scratch, bundle.config, creation.record)
  await stored.save(spec)
  const cgroup = cgroupAt(os, spec.Linux.CgroupsPath, isV2, log)
  const { init, state } = await launchInit(creation, cgroup, { hasTerminal, connections })
  const { record } = creation
  if (sandbox.pidNamespace.begin(record)) {
    const { path: pidNamespace } = sandbox.pidNamespace
    // The previous maker of the namespace may have been removed since this creation began.
    if (record.fields.pidNamespace !== pidNamespace) record.save({ pidNamespace })
    await pinPidNamespace({ os, target: sandbox.pidNamespace.path, pid: init.pid, onRemove })
  }
  await cloneSharedMounts(dependencies, { mounts: request.sharedMounts, init }, signal)
  const processes = new ProcessTable(record, init)
  const programBeforeStart = await programOf(os, init.pid)
  const release = () => onRemove.run()
  const made = { init, processes, record, cgroup, programBeforeStart, pciAddresses, release }
  return { parts: { ...made, ...hooks, spec: stored }, init: state }
}

async function attachStorages({ dependencies, request, call, onRemove }: Creation): Promise<void> {
  const { storage } = dependencies
  const attached = await storage.attach(request.storages, request.containerId, call.signal)
  onRemove.add('storages', () => storage.release(attached))
}

async function specFor(
  creation: Creation,
  devices: Pick<GuestChoices, 'devices' | 'deviceEdits'>,
  isV2: boolean,
): Promise<ContainerSpec> {
  const { dependencies, request, onDeviation, call, sandbox, bundle } = creation
  const { os, runtime, containersCgroup } = dependencies
  const { spec: requested, process, linux } = completeSpec(request.OCI)
  const support = await guestSupport({ os, runtime, isV2 }, requested)
  const pid = request.sandboxPidns
    ? await sandbox.pidNamespace.joinedBy(creation.record, call.signal)
    : undefined
  return containerSpec(supportedSpec(requested, support, onDeviation), {
    containerId: request.containerId,
    rootfs: bundle.rootfs,
    namespaces: { ...sandbox.namespaces, pid, cgroup: isV2 },
    ...devices,
    deviceModes: await deviceModes(os, request.OCI),
    hooks: sandbox.guestHooks,
    cgroupParent: containersCgroup.path,
    nofile: nofileOf(process.Rlimits) ?? nofileIn(await os.scratch.readText('/proc/self/limits')),
    pids: linux.Resources?.Pids?.Limit ?? (await shareOfProcesses(os, isV2)),
  })
}

/** The default limit of processes: half of the kernel's limit (threads count), so that the agent and others can fork. */
async function shareOfProcesses(os: Os, isV2: boolean): Promise<bigint | undefined> {
  if (!(await hasController(os, 'pids', isV2))) return undefined
  const texts = ['threads-max', 'pid_max'].map((name) => os.scratch.readText(`/proc/sys/kernel/${name}`))
  return BigInt(Math.floor(Math.min(...(await Promise.all(texts)).map(Number)) / 2))
}

/** Modes of the guest's device nodes, for devices that the host sent without a mode. */
async function deviceModes({ files }: Os, spec: Spec | undefined): Promise<Map<string, number>> {
  const modes = new Map<string, number>()
  for (const { Path, FileMode } of spec?.Linux?.Devices ?? []) {
    const status = FileMode === 0 ? await files.stat(Path) : undefined
    if (status !== undefined) modes.set(Path, status.mode)
  }
  return modes
}

async function launchInit(
  { dependencies, record, request, call, bundle, onFailure }: Creation,
  cgroup: Cgroup,
  stdio: { readonly hasTerminal: boolean; readonly connections: PortConnections },
): Promise<{ readonly init: ContainerProcess; readonly state: ProcessState }> {
  const { os, keys, runtime, containersCgroup } = dependencies
  const id = request.containerId
  const { spec, process } = completeSpec(request.OCI)
  const [program = ''] = process.Args
  // Every process in the cgroup counts as the container's from here on, and is killed with it.
  if (!(await cgroup.isEmpty())) {
    throw new AgentError('INVALID_ARGUMENT', `linux.cgroupsPath: cgroup of container ${id}: not empty`)
  }
  await containersCgroup.limit()
  // Register the undo before the step: a runtime that fails or is killed leaves processes, state and a cgroup.
  onFailure.add('cgroup', () => cgroup.remove())
  onFailure.add('runtime', () => runtime.erase(id))
  onFailure.add('processes', () => cgroup.killAll())
  const key = keys.next()
  onFailure.add('run', () => runtime.discardRun(key))
  const launch = await prepareLaunch(dependencies, { key, ...stdio, onFailure })
  try {
    let stat = ''
    const isMember = async (pid: number) => {
      if (launch.hasEnded(pid)) return true
      const seen = await cgroup.lookAt(pid)
      stat = seen.stat
      return seen.isMember
    }
    const { streams } = launch
    const container = { key, id, bundle: bundle.folder, program, spec, streams, isMember }
    const { hasTerminal } = stdio
    const process = newProcess(os, '', { key, hasTerminal, request: call.number })
    record.saveProcess(process)
    const init = await launch.follow(await runtime.create(container, call.signal))
    const beganNs = stat === '' ? process.beganNs : parseStartNs(stat)
    return { init, state: { ...process, pid: init.pid, beganNs } }
  } finally {
    await launch.close()
  }
}

/** Names of other folders beside the bundles. */
const RESERVED_IDS = ['sandbox', 'shared']

/** Throws INTERNAL for an invalid or reserved id. */
export function checkContainerId(id: string): void {
  const fault = faultOfId(id)
  if (fault !== undefined) throw new AgentError('INTERNAL', `container id '${id}': ${fault}`)
}

/** Undefined for a valid id, which is safe as one component of a path. */
export function faultOfId(id: string): string | undefined {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]+$/.test(id) || id.length > 255)
    return "invalid, want 2 to 255 letters, digits, '.', '-' or '_', a letter or digit first"
  return RESERVED_IDS.includes(id) ? `reserved, want none of ${RESERVED_IDS.join(', ')}` : undefined
}
