import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../src/base/abort.ts'
import { AgentError } from '../../src/base/errors.ts'
import { waitForPciBlockDevice } from '../../src/hotplug/block-device.ts'
import { parsePciPath } from '../../src/hotplug/pci/pci-path.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

const BRIDGE = '/sys/devices/pci0000:00/0000:00:02.0'
const DEVICE = `${BRIDGE}/0000:01:03.0`
const ADD_PCI = uevent('add', DEVICE, 'pci')
const ADD_BLOCK = uevent('add', `${DEVICE}/virtio4/block/vdb`, 'block', 'vdb')

describe('waitForPciBlockDevice', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.makeDirectories(`${BRIDGE}/pci_bus/0000:01`)
  })

  it('finds a disk that is already present', async () => {
    await plug()
    await expect(wait()).resolves.toBe('/dev/vdb')
    expect(os.uevents.listeners.size).toBe(0)
    expect(os.clock.sleeping).toBe(0)
  })

  it('finds a disk when its event comes', async () => {
    const found = wait()
    await listening()
    await plug()
    os.uevents.send(ADD_BLOCK)
    await expect(found).resolves.toBe('/dev/vdb')
    expect(os.uevents.listeners.size).toBe(0)
  })

  it('probes the disk that the event names without walking the PCI path', async () => {
    const found = wait()
    await listening()
    await plug()
    os.files.list = async (path) => Promise.reject(new Error(`${path} was listed`))
    os.uevents.send(ADD_BLOCK)
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('does not mistake another disk for one that was removed after its event', async () => {
    const found = wait()
    await listening()
    await plug({ node: false })
    os.uevents.send(ADD_BLOCK)
    await turn()
    // Another device has its name and its numbers.
    await os.files.removeTree(`${DEVICE}/virtio4`)
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
    os.clock.advance(1000)
    await turn()
    expect(os.uevents.listeners.size).toBe(1)
    await plug({ node: false })
    os.uevents.send(ADD_BLOCK)
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('is not confused by the names of its partitions or other devices', async () => {
    const found = wait()
    await listening()
    await plug()
    os.uevents.send(uevent('add', `${DEVICE}/virtio4/block/vdb/vdb1`, 'block', 'vdb1'))
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('finds a disk behind a new bridge', async () => {
    await os.files.removeTree(BRIDGE)
    const found = wait()
    await listening()
    await os.files.makeDirectories(`${BRIDGE}/pci_bus/0000:01`)
    os.uevents.send(uevent('add', `${BRIDGE}/pci_bus/0000:01`, 'pci_bus'))
    await plug()
    os.uevents.send(ADD_BLOCK)
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('finds a disk of an arm64 guest, whose bus is below a platform device', async () => {
    const root = '/sys/devices/platform/4010000000.pcie/pci0000:00'
    const device = `${root}/0000:00:02.0/0000:01:03.0`
    await os.files.removeTree('/sys/devices/pci0000:00')
    await os.files.makeDirectories(`${root}/0000:00:02.0/pci_bus/0000:01`)
    const found = wait()
    await listening()
    await plug({ device })
    os.uevents.send(uevent('add', `${device}/virtio4/block/vdb`, 'block', 'vdb'))
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('keeps waiting while the node is missing or belongs to an earlier disk', async () => {
    await plug({ node: false })
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 8, minor: 0 })
    const found = wait()
    await listening()
    await os.files.removeFile('/dev/vdb')
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
    os.uevents.send(ADD_BLOCK)
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('probes again when events were lost', async () => {
    const found = wait()
    await listening()
    await plug()
    for (const listener of os.uevents.listeners)
      listener.error(new AgentError('INTERNAL', 'receive uevents: ENOBUFS'))
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('reports what it waited for and which events came', async () => {
    const found = wait()
    await listening()
    os.uevents.send(ADD_PCI)
    os.uevents.send(uevent('add', '/sys/devices/virtual/block/loop9', 'block', 'loop9'))
    os.clock.advance(3000)
    const failure = expect(found).rejects
    await failure.toMatchObject({ code: 'INTERNAL' })
    await failure.toThrow('Timeout after 3s waiting for uevent of a block device at PCI path 02/03')
    await failure.toThrow(`no ${DEVICE}/virtio*/block/*`)
    await failure.toThrow('2 uevents, of which 0 match: add@/devices/pci0000:00')
    expect(os.uevents.listeners.size).toBe(0)
  })

  it('names the bridge that did not appear', async () => {
    await os.files.removeTree(`${BRIDGE}/pci_bus`)
    const found = wait()
    await listening()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow(`no bus behind the bridge ${BRIDGE}; during the wait no uevents`)
  })

  it('stops when its call is cancelled', async () => {
    const call = new AbortController()
    const found = wait(call.signal)
    await listening()
    call.abort(cancelled())
    await expect(found).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(os.uevents.listeners.size).toBe(0)
    expect(os.clock.sleeping).toBe(0)
  })

  it('runs two waits independently', async () => {
    const call = new AbortController()
    const first = wait(call.signal)
    const second = wait()
    await listening(2)
    call.abort(cancelled())
    await expect(first).rejects.toMatchObject({ code: 'CANCELLED' })
    await plug()
    os.uevents.send(ADD_BLOCK)
    await expect(second).resolves.toBe('/dev/vdb')
  })

  function wait(signal = neverAborted) {
    return waitForPciBlockDevice(hotplugOf(os), parsePciPath('02/03'), signal)
  }

  /**
   * The first look is over and the wait continues: FakeOs answers within one turn. One of the two sleeps ends in the
   * timeout, the other in the rescan.
   */
  async function listening(count = 1) {
    await turn()
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([count, 2 * count])
  }

  async function plug({ node = true, device = DEVICE } = {}) {
    await os.files.put(`${device}/virtio4/block/vdb/dev`, '254:16\n')
    if (node) await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
  }
})

function uevent(action: string, sysfsPath: string, subsystem: string, deviceName = '') {
  const path = sysfsPath.replace(/^\/sys/, '')
  const name = deviceName === '' ? '' : `DEVNAME=${deviceName}\0`
  return `${action}@${path}\0ACTION=${action}\0DEVPATH=${path}\0SUBSYSTEM=${subsystem}\0${name}SEQNUM=1000\0`
}
