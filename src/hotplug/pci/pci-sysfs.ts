import type { Files } from '../../os/files/files.ts'
import { deviceName, type PciPath, rootBusName } from './pci-path.ts'

export type PciLocation =
  | {
      /** The sysfs path that the device has or will have, as uevents name it: `/devices/pci0000:00/0000:00:02.0/0000:01:03.0`. */
      readonly devicePath: string
    }
  | {
      readonly missing: string
    }

/** Follows a PCI path from its root bus. The bridges must exist; the device itself may still be missing. */
export async function locatePciDevice(files: Files, path: PciPath): Promise<PciLocation> {
  const rootBus = rootBusName(path)
  const root = await pciRoot(files, rootBus)
  if (root === undefined) return { missing: `PCI root /sys/devices/pci${rootBus}` }
  let bus = rootBus
  let devicePath = root
  for (const [depth, slot] of path.slots.entries()) {
    devicePath = `${devicePath}/${deviceName(bus, slot)}`
    if (depth === path.slots.length - 1) break
    const behind = await busBehind(files, `/sys${devicePath}`)
    if (behind === undefined) return { missing: `bus behind the bridge /sys${devicePath}` }
    bus = behind
  }
  return { devicePath }
}

/** `/devices/pci0000:00` with ACPI, else `/devices/platform/<host bridge>/pci0000:00` (arm64 with a device tree). */
async function pciRoot(files: Files, rootBus: string): Promise<string | undefined> {
  const plain = `/devices/pci${rootBus}`
  if ((await files.stat(`/sys${plain}`)) !== undefined) return plain
  const platform = '/devices/platform'
  for (const name of await files.list(`/sys${platform}`)) {
    if (!name.endsWith('.pcie')) continue
    const candidate = `${platform}/${name}/pci${rootBus}`
    if ((await files.stat(`/sys${candidate}`)) !== undefined) return candidate
  }
  return undefined
}

/** The bus behind a bridge: the only entry in `pci_bus`, or else the bus in the names of the devices below it. */
async function busBehind(files: Files, bridge: string): Promise<string | undefined> {
  const buses = await files.list(`${bridge}/pci_bus`)
  if (buses.length === 1) return buses[0]
  const names = await files.list(bridge)
  return names.map((name) => /^([0-9a-f]{4}:[0-9a-f]{2}):[0-9a-f]{2}\.[0-7]$/.exec(name)?.[1]).find(Boolean)
}
