import { readdirSync, readlinkSync, writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { waitForPciBlockDevice } from '../../../src/hotplug/block-device.ts'
import { parsePciPath } from '../../../src/hotplug/pci/pci-path.ts'
import type { Uevent } from '../../../src/os/devices/uevent.ts'
import { hotplugOf } from '../../support/handlers/device/device-dependencies.ts'
import { realOs } from '../../support/os/real-os.ts'

const disk = virtioDisk()

describe('hot-plug on a real kernel', () => {
  it.skipIf(disk === undefined)('finds a virtio disk of this machine by its PCI path', async () => {
    const os = await realOs()
    const found = waitForPciBlockDevice(hotplugOf(os), parsePciPath(disk?.pciPath ?? ''), neverAborted)
    await expect(found).resolves.toBe(`/dev/${disk?.name}`)
  })

  it('reads what the kernel itself sends', async () => {
    const os = await realOs()
    const received = Promise.withResolvers<Uevent>()
    const socket = os.uevents.listen({
      event(event) {
        if (event.devicePath === '/devices/virtual/net/lo') received.resolve(event)
      },
      error: received.reject,
    })
    writeFileSync('/sys/class/net/lo/uevent', 'add')
    const event = await received.promise.finally(() => socket.close())
    expect(event).toMatchObject({ action: 'add', subsystem: 'net', interfaceName: 'lo' })
  })
})

/** A disk directly on the first PCI bus, if this machine has one. */
function virtioDisk(): { readonly name: string; readonly pciPath: string } | undefined {
  for (const name of readdirSync('/sys/block')) {
    const link = readlinkSync(`/sys/block/${name}`)
    const pciPath = /\/pci0000:00\/0000:00:([0-9a-f]{2}\.[0-7])\/virtio\d+\/block\//.exec(link)?.[1]
    if (pciPath !== undefined) return { name, pciPath }
  }
  return undefined
}
