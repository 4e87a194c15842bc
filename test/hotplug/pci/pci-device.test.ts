import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { waitForPciDevice } from '../../../src/hotplug/pci/pci-device.ts'
import { parsePciPath } from '../../../src/hotplug/pci/pci-path.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { hotplugOf } from '../../support/handlers/device/device-dependencies.ts'

const ROOT = '/devices/pci0000:00'

describe('waitForPciDevice', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.makeDirectories(`/sys${ROOT}/0000:00:02.0/pci_bus/0000:01`)
  })

  it('finds a present device, with or without a driver', async () => {
    await os.files.makeDirectories(`/sys${ROOT}/0000:00:02.0/0000:01:03.1`)
    await expect(wait('02/03.1')).resolves.toBe('0000:01:03.1')
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  })

  it('finds a device when its event comes, even behind a new bridge', async () => {
    const found = wait('04/00')
    await turn()
    await add(`${ROOT}/0000:00:04.0`, 'pci')
    await add(`${ROOT}/0000:00:04.0/pci_bus/0000:05`, 'pci_bus')
    await add(`${ROOT}/0000:00:04.0/0000:05:00.0`, 'pci')
    await expect(found).resolves.toBe('0000:05:00.0')
  })

  it('rescans for a late device, and probes again', async () => {
    await os.files.put('/sys/bus/pci/rescan', '')
    os.files.onWrite = (path) =>
      path === '/sys/bus/pci/rescan' ? os.files.makeDirectories(`/sys${ROOT}/0000:00:06.0`) : undefined
    const found = wait('06')
    await turn()
    os.clock.advance(1000)
    await expect(found).resolves.toBe('0000:00:06.0')
  })

  it('names the missing device and lists the present ones', async () => {
    await os.files.symlink('../../../../bus/pci/drivers/mlx5_core', await device('0000:00:07.0'))
    const found = wait('06')
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow(
      /PCI device at PCI path 06: no \/sys\/devices\/pci0000:00\/0000:00:06\.0; .*sysfs shows 0000:00:07\.0 \(mlx5_core\)$/,
    )
  })

  const wait = (path: string) => waitForPciDevice(hotplugOf(os), parsePciPath(path), neverAborted)

  async function add(path: string, subsystem: string) {
    await os.files.makeDirectories(`/sys${path}`)
    os.uevents.send(`add@${path}\0ACTION=add\0DEVPATH=${path}\0SUBSYSTEM=${subsystem}\0SEQNUM=7\0`)
  }

  async function device(address: string): Promise<string> {
    await os.files.makeDirectories(`/sys/bus/pci/devices/${address}`)
    return `/sys/bus/pci/devices/${address}/driver`
  }
})
