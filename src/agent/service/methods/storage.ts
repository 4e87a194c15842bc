import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { updateEphemeral } from '../../../handlers/storage/drivers/ephemeral.ts'
import type { MountContext } from '../../../handlers/storage/mount-storage.ts'
import { cancellable, finishing, type ServiceMethods } from '../rpc.ts'

export function storageMethods(storage: MountContext, sandbox: SandboxContext) {
  return {
    // Journaled, because a second run without the option `remount` mounts again.
    updateEphemeralMounts: finishing('journaled', ({ storages }, { signal }) =>
      updateEphemeral(storage, storages, signal),
    ),
    // Journaled, because the last chunk completes the file, and a repeated chunk finds no unfinished file.
    copyFile: cancellable('journaled', (request, call) => sandbox.fileCopies.copy(request, call), {
      logLevel: 'debug',
      dataField: 8,
    }),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
