import { AgentError } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import { UndoList } from '../../base/undo.ts'
import type { CreateSandboxRequest, KernelModule } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import type { Call } from '../../state/request.ts'
import { SharedPidNamespace } from '../container/sharing/shared-pid-namespace.ts'
import { emptyFolder } from '../storage/empty-folder.ts'
import type { SandboxContext } from './context.ts'
import { emptySharedRoot } from './empty-shared-root.ts'
import { findGuestHooks } from './guest-hooks.ts'
import { checkHostname } from './identity.ts'
import { removeStaleResolvConf, setResolvConf } from './resolv-conf.ts'
import { Phase, SandboxRecord } from './sandbox-record.ts'
import type { Sandbox } from './sandbox-state.ts'

/** CreateSandbox. Throws, and changes nothing, while a sandbox exists. DestroySandbox interrupts it. */
export async function createSandbox(
  context: SandboxContext,
  request: CreateSandboxRequest,
  { signal, number }: Call,
): Promise<void> {
  checkHostname('hostname', request.hostname)
  const storages = context.storage.mountPointsOf(request.storages)
  const transition = context.sandboxState.beginCreate()
  const ending = AbortSignal.any([signal, transition.interrupted])
  const onDestroy = new UndoList(context.log)
  const record = new SandboxRecord(context.state)
  try {
    context.containers.names.forgetSandbox()
    record.save({ phase: Phase.CREATING, request: number, id: request.sandboxId, storages })
    const sandbox = await setUp(context, request, { onDestroy, record }, ending)
    ending.throwIfAborted()
    record.save({ phase: Phase.ACTIVE })
    context.oom.queue.open()
    transition.created(sandbox)
  } catch (error) {
    await onDestroy.run()
    transition.failed()
    record.remove()
    throw error
  }
}

async function setUp(
  context: SandboxContext,
  request: CreateSandboxRequest,
  { onDestroy, record }: { readonly onDestroy: UndoList; readonly record: SandboxRecord },
  signal: AbortSignal,
): Promise<Sandbox> {
  const { os, config, storage, log } = context
  await emptyUnused(context)
  onDestroy.add('shared folder', () => emptyUnused(context))
  onDestroy.add('kept storages', () => storage.clear())
  await loadKernelModules(os, request.kernelModules, signal)
  const folder = config.sandboxNamespaceDir
  const namespaces = await pinNamespaces({ os, folder, hostname: request.hostname, onDestroy })
  const attached = await storage.attach(request.storages, undefined, signal)
  onDestroy.add('storages', () => storage.release(attached))
  const guestHooks = await findGuestHooks(os.files, request.guestHookPath, log)
  record.saveHooks(guestHooks)
  await setResolvConf(os, config.sharedRoot, request.dns, onDestroy)
  const { names } = context.containers
  return {
    get id() {
      return names.sandboxId ?? request.sandboxId
    },
    namespaces,
    pidNamespace: new SharedPidNamespace(`${folder}/pid`),
    guestHooks,
    onDestroy,
    record,
  }
}

/** Keeps the shared folder when containers came before the sandbox, because their bundles and storages are there. */
async function emptyUnused({
  os,
  config,
  containers,
  fileCopies,
}: Pick<SandboxContext, 'os' | 'config' | 'containers' | 'fileCopies'>): Promise<void> {
  if (containers.list().length > 0) return
  await fileCopies.dropAll()
  await emptySharedRoot(os, config.sharedRoot)
}
/** The previous agent's sandbox, finished or not. Its undo skips steps that were not done. */
export function restoredSandbox(context: SandboxContext, record: SandboxRecord): Sandbox {
  const { os, config, storage, log } = context
  const { id, prestart, poststart, poststop, storages: mountPoints } = record.fields
  const onDestroy = new UndoList(log)
  const folder = config.sandboxNamespaceDir
  onDestroy.add('shared folder', () => emptyUnused(context))
  onDestroy.add('kept storages', () => storage.clear())
  onDestroy.add('namespaces', () => emptyFolder(os, folder))
  // The previous agent's DestroySandbox may have detached some of them.
  const held = () => mountPoints.filter((mountPoint) => storage.isUsed(mountPoint))
  if (record.fields.phase !== Phase.CREATING)
    onDestroy.add('storages', () => storage.release({ mountPoints: held() }))
  onDestroy.add('resolv.conf', () => removeStaleResolvConf(os, config.sharedRoot))
  const { names } = context.containers
  return {
    get id() {
      return names.sandboxId ?? id
    },
    onDestroy,
    record,
    namespaces: { ipc: `${folder}/ipc`, uts: `${folder}/uts` },
    pidNamespace: new SharedPidNamespace(`${folder}/pid`),
    guestHooks: { prestart, poststart, poststop },
  }
}

/** Loads the modules in order. Throws INTERNAL at the first that cannot be loaded; earlier modules stay loaded. */
async function loadKernelModules(
  os: Os,
  modules: readonly KernelModule[],
  signal: AbortSignal,
): Promise<void> {
  for (const { name, parameters } of modules) {
    // Such a name would be an option. The `--` keeps parameters with a leading dash from being options.
    if (name === '' || name.startsWith('-')) {
      throw new AgentError('INTERNAL', `invalid kernel module name '${name}'`, { fault: 'caller' })
    }
    const argv = ['/sbin/modprobe', '-v', '--', name, ...parameters] as const
    const result = await inStep('program', `modprobe ${name}`, () => os.tools.run(argv, { signal }))
    if (result.exitCode !== 0) {
      const text = `load_kernel_module return code: ${result.exitCode} for ${name}: ${result.stderr.trim()}`
      throw new AgentError('INTERNAL', text)
    }
  }
}

/** Makes the ipc and uts namespaces of all containers, pinned in `folder`. An empty host name keeps the guest's. */
async function pinNamespaces(options: {
  readonly os: Os
  readonly folder: string
  readonly hostname: string
  readonly onDestroy: UndoList
}): Promise<Sandbox['namespaces']> {
  const { os, folder, hostname, onDestroy } = options
  await emptyFolder(os, folder)
  // Register the undo before the step: a failed step may have pinned one of the two.
  onDestroy.add('namespaces', () => emptyFolder(os, folder))
  const pins = { ipc: `${folder}/ipc`, uts: `${folder}/uts` }
  await os.files.write(pins.ipc, '')
  await os.files.write(pins.uts, '')
  await os.mounts.pinNamespaces({ ...pins, hostname })
  return pins
}
