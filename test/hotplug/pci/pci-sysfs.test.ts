import { describe, expect, it } from 'vitest'
import { parsePciPath } from '../../../src/hotplug/pci/pci-path.ts'
import { locatePciDevice } from '../../../src/hotplug/pci/pci-sysfs.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const ROOT = '/sys/devices/pci0000:00'

describe('locatePciDevice', () => {
  it('locates a device on the root bus that may not exist yet', async () => {
    expect(await locate('05', [ROOT])).toEqual({ devicePath: '/devices/pci0000:00/0000:00:05.0' })
  })

  it('finds the bus behind a bridge in its pci_bus', async () => {
    expect(await locate('02/03', [`${ROOT}/0000:00:02.0/pci_bus/0000:01`])).toEqual({
      devicePath: '/devices/pci0000:00/0000:00:02.0/0000:01:03.0',
    })
  })

  it('follows several bridges and functions', async () => {
    const second = `${ROOT}/0000:00:02.1/0000:01:00.0`
    const folders = [`${ROOT}/0000:00:02.1/pci_bus/0000:01`, `${second}/pci_bus/0000:0a`]
    expect(await locate('02.1/00/1f.7', folders)).toEqual({
      devicePath: '/devices/pci0000:00/0000:00:02.1/0000:01:00.0/0000:0a:1f.7',
    })
  })

  it('infers the bus from the devices on it when pci_bus is ambiguous', async () => {
    const folders = [`${ROOT}/0000:00:02.0/power`, `${ROOT}/0000:00:02.0/0000:07:00.0`]
    expect(await locate('02/03', folders)).toEqual({
      devicePath: '/devices/pci0000:00/0000:00:02.0/0000:07:03.0',
    })
  })

  it('starts at an extra root complex', async () => {
    const root = '/sys/devices/pci0000:20'
    expect(await locate('20/01/03', [ROOT, `${root}/0000:20:01.0/pci_bus/0000:21`])).toEqual({
      devicePath: '/devices/pci0000:20/0000:20:01.0/0000:21:03.0',
    })
  })

  it('finds the root of an arm64 guest without ACPI', async () => {
    expect(await locate('03', ['/sys/devices/platform/4010000000.pcie/pci0000:00'])).toEqual({
      devicePath: '/devices/platform/4010000000.pcie/pci0000:00/0000:00:03.0',
    })
  })

  it('names the bridge that has no bus yet', async () => {
    expect(await locate('02/03', [ROOT])).toEqual({
      missing: `bus behind the bridge ${ROOT}/0000:00:02.0`,
    })
  })

  it('names a missing root bus', async () => {
    expect(await locate('30/00/01', [ROOT])).toEqual({ missing: 'PCI root /sys/devices/pci0000:30' })
  })
})

async function locate(path: string, folders: readonly string[]) {
  const { files } = new FakeOs()
  for (const folder of folders) await files.makeDirectories(folder)
  return locatePciDevice(files, parsePciPath(path))
}
