import type { CreateSandboxRequest } from '../../src/gen/agent.ts'
import { agent, type Step, type Surroundings } from './sequence.ts'

/** The folder in which all shims share the root file systems (E.5). */
export const SHARED_FOLDER = '/run/kata-containers/shared/containers/'

/** The mount point of the sandbox's shared memory (E.5). */
export const SHM_FOLDER = '/run/kata-containers/sandbox/shm'

const SHM = { driver: 'ephemeral', source: 'shm', fstype: 'tmpfs', mountPoint: SHM_FOLDER }

/**
 * CreateSandbox with the shared folder of root file systems and with shared memory (C.25). On a machine without a
 * shared folder this call must fail, and is repeated with other storages in its place.
 */
export function sandboxCreated(
  from: string,
  request: Partial<CreateSandboxRequest>,
  roots: Surroundings['roots'],
  rootPaths: readonly string[],
): readonly Step[] {
  const share = { driver: 'virtio-fs', source: 'kataShared', fstype: 'virtiofs', mountPoint: SHARED_FOLDER }
  const shm = { ...SHM, options: ['noexec', 'nosuid', 'nodev', 'mode=1777', 'size=67108864'] }
  const call = agent('createSandbox', { ...request, storages: [share, shm] })
  if (roots === 'shared folder') return [{ from, call }]
  const fails = { codes: ['INTERNAL', 'UNIMPLEMENTED'], text: /no virtio-?fs/ } as const
  return [
    { from: 'E.3', call, fails },
    { from, call: agent('createSandbox', { ...request, storages: [...roots(rootPaths), shm] }) },
  ]
}

/** Changes the size of the shared memory, after memory was hot-plugged (C.8). */
export function shmResized(from: string, size: string): Step {
  const options = ['remount', `size=${size}`]
  return { from, call: agent('updateEphemeralMounts', { storages: [{ ...SHM, options }] }) }
}
