import type { Os } from '../../../../os/os.ts'

/** How the devices are called that are mapped for layers: so, that they are nobody else's even on a developer's machine. */
export const MAPPED_PREFIX = 'microvm-layers-'

const BLOCK = '/sys/block'

/** Takes away the mapped devices that an agent that died has left, once nothing is mounted from them any more. */
export async function unmapStale({ blockDevices, files }: Pick<Os, 'blockDevices' | 'files'>): Promise<void> {
  for (const device of await files.list(BLOCK)) {
    const place = `${BLOCK}/${device}/dm/name`
    if (!device.startsWith('dm-') || (await files.stat(place)) === undefined) continue
    const name = (await files.readText(place)).trim()
    if (name.startsWith(MAPPED_PREFIX)) await blockDevices.unmap(name)
  }
}
