import { type Hotplug, waitForDevice } from './wait-for-device.ts'

const GROUPS = '/sys/devices/virtual/vfio'

/**
 * The node of an IOMMU group (`/dev/vfio/5`) appears when a device of the group is bound to vfio-pci. Throws INTERNAL after
 * the timeout, or the reason of `signal`.
 */
export function waitForVfioGroup(dependencies: Hotplug, group: string, signal: AbortSignal): Promise<string> {
  const { files } = dependencies
  const node = `/dev/vfio/${group}`
  return waitForDevice(
    dependencies,
    {
      description: `VFIO group ${group}`,
      probe: async () =>
        (await files.stat(node))?.kind === 'character' ? { found: node } : { missing: `device node ${node}` },
      matches: ({ action, devicePath }) => action === 'add' && `/sys${devicePath}` === `${GROUPS}/${group}`,
      candidates: () => files.list(GROUPS),
    },
    signal,
  )
}
