import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import { updateEphemeral } from '../../../handlers/storage/drivers/ephemeral.ts'
import type { MountDependencies } from '../../../handlers/storage/mount-storage.ts'
import { finishing, type ServiceMethods, unimplemented } from '../rpc.ts'

/** The RPCs of mounts and files of the guest (spec C.8, C.32). CreateContainer attaches the storages. */
export function storageMethods(storage: MountDependencies) {
  return {
    // Journaled: without the option `remount` a second run mounts once more.
    updateEphemeralMounts: finishing('journaled', ({ storages }, { signal }) =>
      updateEphemeral(storage, storages, signal),
    ),
    copyFile: unimplemented('CopyFile'),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
