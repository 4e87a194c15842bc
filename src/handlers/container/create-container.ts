import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { CreateContainerRequest } from '../../gen/agent.ts'
import type { Spec } from '../../gen/oci.ts'
import type { AskedDevice } from '../../oci/cdi/asked-for.ts'
import { cgroupsPath } from '../../oci/cgroups-path.ts'
import { checkSpec } from '../../oci/check-spec.ts'
import {
  type ContainerSpec,
  completeSpec,
  containerSpec,
  type GuestChoices,
} from '../../oci/container-spec.ts'
import { checkDevicePaths } from '../../oci/guest-devices.ts'
import { defaultNofile } from '../../oci/rlimits.ts'
import { type Cgroup, cgroupAt, usesCgroupV2 } from '../cgroup/cgroup.ts'
import { connectStdio, launch } from '../process/launch.ts'
import type { ContainerProcess } from '../process/process.ts'
import { ProcessTable } from '../process/process-table.ts'
import { programOf } from '../process/signal-process.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { pinPidNamespace } from '../sandbox/namespaces.ts'
import type { Sandbox } from '../sandbox/sandbox-state.ts'
import type { PortConnections } from '../stdio/port-connections.ts'
import { type Bundle, bundleOf, makeBundle, mountRoot } from './bundle.ts'
import type { ContainerParts } from './container.ts'
import { checkContainerId } from './container-id.ts'
import { checkSharedMounts, cloneSharedMounts } from './shared-mounts.ts'
import { StoredSpec } from './stored-spec.ts'

/** One creation under way. */
interface Creation {
  readonly context: SandboxContext
  readonly request: CreateContainerRequest
  readonly signal: AbortSignal
  readonly sandbox: Sandbox
  readonly bundle: Bundle
  /** What the spec asks for by CDI names. */
  readonly cdiDevices: readonly AskedDevice[]
  /** What only a failed creation takes back. */
  readonly undo: UndoList
  /** What the container holds for all its life, and gives back at its removal. */
  readonly held: UndoList
}

/**
 * CreateContainer (behaviour spec, section C.1): the container exists afterwards, its first process waiting to be
 * started. When a step fails, or the caller gives up, all steps before it are undone.
 */
export async function createContainer(
  context: SandboxContext,
  request: CreateContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  const id = request.containerId
  checkContainerId(id)
  const complete = completeSpec(request.OCI)
  checkSpec(complete)
  checkDevicePaths(complete.linux, context.devices.updatedPaths(request.devices))
  const cdiDevices = context.devices.askedCdiDevices(complete.spec)
  const sandbox = context.sandboxState.active()
  const container = context.containers.add(id, cgroupsPath(complete.linux.CgroupsPath, id))
  const [undo, held] = [new UndoList(context.log), new UndoList(context.log)]
  const bundle = bundleOf(context.config.sharedRoot, id)
  sandbox.pidNamespace.begin(id)
  held.add('shared pid namespace', () => sandbox.pidNamespace.gone(id))
  try {
    const parts = await build({ context, request, signal, sandbox, bundle, cdiDevices, undo, held })
    signal.throwIfAborted()
    container.created(parts)
    sandbox.pidNamespace.made(id, parts.init)
  } catch (error) {
    await undo.run()
    await held.run()
    context.containers.drop(container)
    throw error
  }
}

async function build(creation: Creation): Promise<ContainerParts> {
  const { context, request, signal, bundle, undo, held } = creation
  const { os } = context
  const { root, process } = completeSpec(request.OCI)
  // First, for the host waits for nothing else: without them nothing else is done.
  const hasTerminal = process.Terminal
  const connections = await connectStdio(context, { ports: request, hasTerminal, undo }, signal)
  const isV2 = await usesCgroupV2(os)
  checkSharedMounts(request.sharedMounts)
  await makeBundle(os, bundle, held)
  const devices = await context.devices.find(request.devices, signal)
  undo.add('devices', devices.release)
  const deviceEdits = await context.devices.findCdiEdits(creation.cdiDevices, signal)
  await attachStorages(creation)
  const { spec, guestSysctls, poststart } = await specFor(creation, { devices, deviceEdits }, isV2)
  await context.sysctls.set(guestSysctls, { undo, held }, signal)
  if (!context.storage.isUsed(bundle.rootfs)) await mountRoot(os, bundle, root.Path, held)
  const stored = new StoredSpec(os.files, bundle.config, spec)
  await stored.save()
  const cgroup = cgroupAt(os, spec.Linux.CgroupsPath, isV2, context.log)
  const init = await createInRuntime(creation, cgroup, { hasTerminal, connections })
  const { sandbox } = creation
  if (sandbox.pidNamespace.begin(request.containerId)) {
    await pinPidNamespace({ os, target: sandbox.pidNamespace.path, pid: init.pid, undo: held })
  }
  await cloneSharedMounts(context, { mounts: request.sharedMounts, init }, signal)
  const processes = new ProcessTable(request.containerId, init)
  const programBeforeStart = await programOf(os, init.pid)
  const { pciAddresses } = devices
  const release = () => held.run()
  return { init, spec: stored, poststart, processes, cgroup, programBeforeStart, pciAddresses, release }
}

async function attachStorages({ context, request, signal, held }: Creation): Promise<void> {
  const attached = await context.storage.attach(request.storages, request.containerId, signal)
  held.add('storages', () => context.storage.release(attached))
}

async function specFor(
  creation: Creation,
  devices: Pick<GuestChoices, 'devices' | 'deviceEdits'>,
  isV2: boolean,
): Promise<ContainerSpec> {
  const { context, request, signal, sandbox, bundle } = creation
  const pid = request.sandboxPidns
    ? await sandbox.pidNamespace.joinedBy(request.containerId, signal)
    : undefined
  return containerSpec(request.OCI, {
    containerId: request.containerId,
    rootfs: bundle.rootfs,
    namespaces: { ...sandbox.namespaces, pid, cgroup: isV2 },
    ...devices,
    deviceModes: await deviceModes(context, request.OCI),
    hooks: sandbox.guestHooks,
    nofile: defaultNofile(await context.os.scratch.readText('/proc/self/limits')),
  })
}

/** Modes of the guest's device nodes, for devices that the host sent without one. */
async function deviceModes({ os }: SandboxContext, spec: Spec | undefined): Promise<Map<string, number>> {
  const modes = new Map<string, number>()
  for (const { Path, FileMode } of spec?.Linux?.Devices ?? []) {
    const status = FileMode === 0 ? await os.files.stat(Path) : undefined
    if (status !== undefined) modes.set(Path, status.mode)
  }
  return modes
}

/** Has the runtime make the container. */
async function createInRuntime(
  creation: Creation,
  cgroup: Cgroup,
  streams: { readonly hasTerminal: boolean; readonly connections: PortConnections },
): Promise<ContainerProcess> {
  const { context, request, signal, bundle, undo } = creation
  const { runtime } = context
  const id = request.containerId
  const program = request.OCI?.Process?.Args[0] ?? ''
  // From here on everything in it is taken for the container's, and killed with it.
  if (!(await cgroup.isEmpty())) {
    throw new AgentError('INVALID_ARGUMENT', `Linux.CgroupsPath: others are in the cgroup of container ${id}`)
  }
  // Before the step itself, for a runtime that fails or is killed half-way leaves processes, state and a cgroup.
  undo.add('runtime', async () => {
    await cgroup.killAll()
    await runtime.erase(id)
    await cgroup.remove()
  })
  return launch(context, {
    ...streams,
    undo,
    // The undo of the runtime ends all that is in the cgroup.
    endUnknown: async () => {},
    start: (childEnd, onPid) =>
      runtime.create({ id, bundle: bundle.folder, program, streams: childEnd, onPid }, signal),
  })
}
