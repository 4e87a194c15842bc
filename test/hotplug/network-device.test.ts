import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { waitForPciNetworkDevice } from '../../src/hotplug/network-device.ts'
import { parsePciPath } from '../../src/hotplug/pci/pci-path.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

const DEVICE = '/sys/devices/pci0000:00/0000:00:05.0'

describe('waitForPciNetworkDevice', () => {
  let os: FakeOs
  beforeEach(async () => {
    os = new FakeOs()
    await os.files.makeDirectories('/sys/devices/pci0000:00')
    await os.files.makeDirectories('/sys/bus/pci/devices/0000:00:03.0')
  })

  it.each([
    ['a virtio card', `${DEVICE}/virtio3/net/eth1`],
    ['any other card', `${DEVICE}/net/eth1`],
  ])('finds %s that was there before', async (_what, path) => {
    await os.files.makeDirectories(path)
    await expect(wait()).resolves.toBe('eth1')
    expect(os.uevents.listeners.size).toBe(0)
  })

  it('finds a card once it has its interface', async () => {
    const found = wait()
    await turn()
    await os.files.makeDirectories(`${DEVICE}/virtio3`)
    os.uevents.send(event(DEVICE, 'pci'))
    await turn()
    await os.files.makeDirectories(`${DEVICE}/virtio3/net/eth1`)
    os.uevents.send(event(`${DEVICE}/virtio3/net/eth1`, 'net'))
    await expect(found).resolves.toBe('eth1')
  })

  it('rescans for a card without events, and probes again', async () => {
    const found = wait()
    await turn()
    await os.files.makeDirectories(`${DEVICE}/virtio3/net/eth1`)
    os.clock.advance(1000)
    await expect(found).resolves.toBe('eth1')
    await expect(os.files.readText('/sys/bus/pci/rescan')).resolves.toBe('1')
  })

  it('reports what was missing', async () => {
    const found = wait()
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow(
      `waiting for uevent of a network device at PCI path 05: no ${DEVICE}/virtio*/net/*`,
    )
    await expect(found).rejects.toThrow('sysfs shows 0000:00:03.0 (no driver)')
  })

  function wait() {
    return waitForPciNetworkDevice(hotplugOf(os), parsePciPath('05'), neverAborted)
  }
})

function event(sysfsPath: string, subsystem: string): string {
  const path = sysfsPath.replace(/^\/sys/, '')
  return `add@${path}\0ACTION=add\0DEVPATH=${path}\0SUBSYSTEM=${subsystem}\0SEQNUM=1000\0`
}
