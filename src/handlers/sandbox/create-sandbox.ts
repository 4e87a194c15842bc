import { UndoList } from '../../base/undo.ts'
import type { CreateSandboxRequest } from '../../gen/agent.ts'
import { SharedPidNamespace } from '../container/sharing/shared-pid-namespace.ts'
import type { SandboxContext } from './context.ts'
import { emptySharedRoot } from './empty-shared-root.ts'
import { findGuestHooks } from './guest-hooks.ts'
import { loadKernelModules } from './kernel-modules.ts'
import { checkHostname, pinNamespaces } from './namespaces.ts'
import { setResolvConf } from './resolv-conf.ts'
import type { Sandbox } from './sandbox-state.ts'

/** CreateSandbox (behaviour spec, section C.25). Throws, and changes nothing, while a sandbox exists.
 * DestroySandbox ends it. */
export async function createSandbox(
  context: SandboxContext,
  request: CreateSandboxRequest,
  signal: AbortSignal,
): Promise<void> {
  checkHostname(request.hostname)
  const transition = context.sandboxState.beginCreate()
  const ending = AbortSignal.any([signal, transition.interrupted])
  const onDestroy = new UndoList(context.log)
  try {
    await context.cleanUpAfterCrash()
    const sandbox = await setUp(context, request, onDestroy, ending)
    ending.throwIfAborted()
    context.oom.queue.open()
    transition.created(sandbox)
  } catch (error) {
    await onDestroy.run()
    transition.failed()
    throw error
  }
}

async function setUp(
  context: SandboxContext,
  request: CreateSandboxRequest,
  onDestroy: UndoList,
  signal: AbortSignal,
): Promise<Sandbox> {
  const { os, config, containers, storage, log, fileCopies } = context
  // Containers that came before the sandbox have their bundles and storages there.
  const emptyUnused = async () => {
    if (containers.list().length > 0) return
    await fileCopies.dropAll()
    await emptySharedRoot(os, config.sharedRoot)
  }
  await emptyUnused()
  onDestroy.add('shared folder', emptyUnused)
  onDestroy.add('kept storages', () => storage.clear())
  await loadKernelModules(os, request.kernelModules, signal)
  const folder = config.sandboxNamespaceDir
  const namespaces = await pinNamespaces({ os, folder, hostname: request.hostname, onDestroy })
  const attached = await storage.attach(request.storages, undefined, signal)
  onDestroy.add('storages', () => storage.release(attached))
  const guestHooks = await findGuestHooks(os.files, request.guestHookPath, log)
  await setResolvConf(os, config.sharedRoot, request.dns, onDestroy)
  return {
    id: request.sandboxId,
    namespaces,
    pidNamespace: new SharedPidNamespace(`${folder}/pid`),
    guestHooks,
    onDestroy,
  }
}
