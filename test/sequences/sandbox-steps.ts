import { CreateSandboxRequest } from '../../src/gen/agent.ts'
import { type RecordedLine, recordedRequest } from '../recordings/recorded-request.ts'
import { agent, type Step, type Surroundings } from './sequence.ts'

const SHM_FOLDER = '/run/kata-containers/sandbox/shm'

/**
 * The recorded CreateSandbox with another id and host name. On a machine without a shared folder this call must fail, and
 * is repeated without that storage.
 */
export function sandboxCreated(
  recorded: RecordedLine,
  changed: Partial<CreateSandboxRequest>,
  { isGuest }: Surroundings,
): readonly Step[] {
  const request = { ...recordedRequest(CreateSandboxRequest, ...recorded), ...changed }
  const call = agent('createSandbox', request)
  if (isGuest) return [{ call }]
  const fails = { codes: ['INTERNAL', 'UNIMPLEMENTED'], text: /no virtio-?fs/ } as const
  const others = request.storages.filter(({ driver }) => driver !== 'virtio-fs')
  return [{ call, fails }, { call: agent('createSandbox', { ...request, storages: others }) }]
}

/** Changes the size of the shared memory after a memory hot-plug. No recording has a storage there. */
export function shmResized(size: string): Step {
  const shm = { driver: 'ephemeral', source: 'shm', fstype: 'tmpfs', mountPoint: SHM_FOLDER }
  const options = ['remount', `size=${size}`]
  return { call: agent('updateEphemeralMounts', { storages: [{ ...shm, options }] }) }
}
