import type { Files } from '../os/os.ts'

const PCI = '/sys/bus/pci'

/** Has the kernel look for devices on every PCI bus, for machines whose hot-plug makes no interrupt. */
export async function rescanPci(files: Files): Promise<void> {
  await files.write(`${PCI}/rescan`, '1')
}

/** The PCI devices in sysfs with their drivers: `0000:00:03.0 (virtio-pci)`. */
export async function pciCandidates(files: Files): Promise<readonly string[]> {
  const names = await files.list(`${PCI}/devices`)
  return Promise.all(
    names.map(async (name) => {
      const driver = `${PCI}/devices/${name}/driver`
      if ((await files.lstat(driver)) === undefined) return `${name} (no driver)`
      return `${name} (${(await files.readLink(driver)).replace(/.*\//, '')})`
    }),
  )
}
