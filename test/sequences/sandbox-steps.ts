import type { CreateSandboxRequest, Storage } from '../../src/gen/agent.ts'
import { agent, type Step } from './sequence.ts'

/** Where all shims share the root file systems (E.5). */
export const SHARED_FOLDER = '/run/kata-containers/shared/containers/'

/** Where the sandbox's shared memory is mounted (E.5). */
export const SHM_FOLDER = '/run/kata-containers/sandbox/shm'

const SHM = { driver: 'ephemeral', source: 'shm', fstype: 'tmpfs', mountPoint: SHM_FOLDER }

/** CreateSandbox with the shared folder of root file systems and with shared memory (C.25). */
export function sandboxCreated(
  from: string,
  request: Partial<CreateSandboxRequest>,
  standIns: readonly Storage[],
): Step {
  const share = { driver: 'virtio-fs', source: 'kataShared', fstype: 'virtiofs', mountPoint: SHARED_FOLDER }
  const shm = { ...SHM, options: ['noexec', 'nosuid', 'nodev', 'mode=1777', 'size=67108864'] }
  return {
    from,
    call: agent('createSandbox', { ...request, storages: [share, shm] }),
    pending: 'storage and devices',
    instead: {
      call: agent('createSandbox', { ...request, storages: [...standIns, shm] }),
      leftOut: 'without the storage kataShared, for there is no virtio-fs',
    },
  }
}

/** Shared memory with another size, after memory was plugged in (C.8). */
export function shmResized(from: string, size: string): Step {
  const options = ['remount', `size=${size}`]
  return { from, call: agent('updateEphemeralMounts', { storages: [{ ...SHM, options }] }) }
}
