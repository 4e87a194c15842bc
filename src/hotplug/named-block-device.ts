import { AgentError } from '../base/errors.ts'
import { blockNode } from './block-node.ts'
import { type HotplugDependencies, waitForDevice } from './wait-for-device.ts'

const BLOCK = '/sys/class/block'

/**
 * Waits for the block device of a given node (`/dev/vdb`, `/dev/pmem0`), which it returns: for buses that tell the
 * host no place, only an order (spec F.2). Throws INVALID_ARGUMENT for what is no name directly below /dev, INTERNAL
 * after the time-out, or what `signal` is aborted with.
 */
export async function waitForNamedBlockDevice(
  dependencies: HotplugDependencies,
  node: string,
  signal: AbortSignal,
): Promise<string> {
  const { files } = dependencies
  const name = /^\/dev\/([a-z][a-z0-9.]*)$/.exec(node)?.[1]
  if (name === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `'${node}' is not a block device directly below /dev`)
  }
  return waitForDevice(
    dependencies,
    {
      description: `block device ${name}`,
      probe: async () => {
        const isThere = (await files.stat(`${BLOCK}/${name}`)) !== undefined
        return isThere ? blockNode(files, `${BLOCK}/${name}`) : { missing: `${BLOCK}/${name}` }
      },
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' && subsystem === 'block' && devicePath.endsWith(`/block/${name}`),
      candidates: () => files.list(BLOCK),
    },
    signal,
  )
}
