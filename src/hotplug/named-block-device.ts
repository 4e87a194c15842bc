import { AgentError } from '../base/errors.ts'
import { getBlockNode } from './sysfs.ts'
import { type Hotplug, waitForDevice } from './wait-for-device.ts'

const BLOCK = '/sys/class/block'

/**
 * Waits for a node (`/dev/vdb`, `/dev/pmem0`) on a bus where the host knows only the order of devices. Throws
 * INVALID_ARGUMENT for a path that is not directly below /dev, INTERNAL after the timeout, or the reason of `signal`.
 */
export async function waitForNamedBlockDevice(
  dependencies: Hotplug,
  node: string,
  signal: AbortSignal,
): Promise<string> {
  const { files } = dependencies
  const name = /^\/dev\/([a-z][a-z0-9.]*)$/.exec(node)?.[1]
  if (name === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `device node "${node}": not a name directly below /dev`)
  }
  return waitForDevice(
    dependencies,
    {
      description: `block device ${name}`,
      probe: async () => {
        const isPresent = (await files.stat(`${BLOCK}/${name}`)) !== undefined
        return isPresent ? getBlockNode(files, `${BLOCK}/${name}`) : { missing: `${BLOCK}/${name}` }
      },
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' && subsystem === 'block' && devicePath.endsWith(`/block/${name}`),
      candidates: () => files.list(BLOCK),
    },
    signal,
  )
}
