import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { updateEphemeral } from '../../../handlers/storage/drivers/ephemeral.ts'
import type { MountDependencies } from '../../../handlers/storage/mount-storage.ts'
import { cancellable, finishing, type ServiceMethods } from '../rpc.ts'

/** The RPCs of mounts and files of the guest. CreateContainer attaches the storages. */
export function storageMethods(storage: MountDependencies, sandbox: SandboxContext) {
  return {
    // Journaled: without the option `remount` a second run mounts once more.
    updateEphemeralMounts: finishing('journaled', ({ storages }, { signal }) =>
      updateEphemeral(storage, storages, signal),
    ),
    // Journaled: once the last chunk has completed the file, the file is not unfinished any more.
    copyFile: cancellable('journaled', (request, call) => sandbox.fileCopies.copy(request, call), {
      logLevel: 'debug',
    }),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
