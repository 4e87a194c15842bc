import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { parseScsiAddress, waitForScsiDisk } from '../../src/hotplug/scsi-disk.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

describe('parseScsiAddress', () => {
  it('reads target and LUN in decimal', () => {
    expect(parseScsiAddress('10:08')).toEqual({ target: 10, lun: 8 })
  })

  it.each(['', '1', '1:', ':1', '1:2:3', 'a:1', '1:-1', '0x1:0', '1: 2', '123456:0'])(
    'refuses %j',
    (text) => {
      expect(() => parseScsiAddress(text)).toThrow(`SCSI address "${text}": want`)
    },
  )
})

describe('waitForScsiDisk', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await addHost('host0')
  })

  it('finds a present disk without a scan', async () => {
    await plug('0:0:2:5', 'sdb')
    await expect(wait()).resolves.toBe('/dev/sdb')
    expect(await scans('host0')).toBe('')
  })

  it('ignores disks of another target, LUN or channel', async () => {
    for (const address of ['0:0:12:5', '0:0:2:55', '0:1:2:5', '0:0:5:2']) await plug(address, 'sda')
    const found = wait()
    await turn()
    await plug('1:0:2:5', 'sdc')
    os.uevents.send(blockEvent('1:0:2:5', 'sdc'))
    await expect(found).resolves.toBe('/dev/sdc')
  })

  it('ignores a device at the address that is not a disk', async () => {
    await os.files.makeDirectories('/sys/bus/scsi/devices/0:0:2:5')
    await plug('1:0:2:5', 'sdc')
    await expect(wait()).resolves.toBe('/dev/sdc')
  })

  it('makes every controller scan the address', async () => {
    await addHost('host1')
    const found = wait()
    await turn()
    expect([await scans('host0'), await scans('host1')]).toEqual(['0 2 5', '0 2 5'])
    await plug('1:0:2:5', 'sdb')
    os.uevents.send(blockEvent('1:0:2:5', 'sdb'))
    await expect(found).resolves.toBe('/dev/sdb')
  })

  it('scans a controller that appears later too', async () => {
    const found = wait()
    await turn()
    await addHost('host7')
    os.uevents.send('add@/devices/x/host7/scsi_host/host7\0ACTION=add\0SUBSYSTEM=scsi_host\0')
    await turn()
    expect(await scans('host7')).toBe('0 2 5')
    await plug('7:0:2:5', 'sdb')
    os.uevents.send(blockEvent('7:0:2:5', 'sdb'))
    await expect(found).resolves.toBe('/dev/sdb')
  })

  it('scans again when no event comes', async () => {
    const found = wait()
    await turn()
    await os.files.write('/sys/class/scsi_host/host0/scan', '')
    os.clock.advance(1000)
    await turn()
    expect(await scans('host0')).toBe('0 2 5')
    os.clock.advance(2000)
    await expect(found).rejects.toThrow(
      'Timeout after 3s waiting for uevent of SCSI disk 2:5: no /sys/bus/scsi/devices/*:0:2:5',
    )
  })

  it('names the controller whose scan failed', async () => {
    await os.files.removeFile('/sys/class/scsi_host/host0/scan')
    await os.files.makeDirectories('/sys/class/scsi_host/host0/scan')
    const found = wait()
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow('write /sys/class/scsi_host/host0/scan: EISDIR')
  })

  it('does not report a failure after a later scan succeeded', async () => {
    await os.files.removeFile('/sys/class/scsi_host/host0/scan')
    await os.files.makeDirectories('/sys/class/scsi_host/host0/scan')
    const found = wait()
    await turn()
    await os.files.removeDirectory('/sys/class/scsi_host/host0/scan')
    await os.files.write('/sys/class/scsi_host/host0/scan', '')
    os.clock.advance(1000)
    await turn()
    os.clock.advance(2000)
    await expect(found).rejects.toThrow(/^(?!.*EISDIR).*no \/sys\/bus\/scsi\/devices\/\*:0:2:5;/)
  })

  it('refuses an address at which two controllers have a disk, and names both', async () => {
    await plug('0:0:2:5', 'sda')
    await plug('1:0:2:5', 'sdb')
    const failure = expect(wait()).rejects
    await failure.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await failure.toThrow(/2:5 is at more than one controller: .*0:0:2:5\/block\/sda, .*1:0:2:5\/block\/sdb/)
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  })

  it('finds the disk of one controller while another hangs, which is scanned only once', async () => {
    await addHost('host1')
    const asked = hang('/sys/class/scsi_host/host0/scan')
    const found = wait()
    await turn()
    await plug('1:0:2:5', 'sdb')
    os.clock.advance(1000)
    await expect(found).resolves.toBe('/dev/sdb')
    expect(asked()).toBe(1)
  })

  it('names the hanging controller after the timeout', async () => {
    hang('/sys/class/scsi_host/host0/scan')
    const found = wait()
    await turn()
    os.clock.advance(1000)
    await turn()
    os.clock.advance(2000)
    await expect(found).rejects.toThrow('*:0:2:5 (host0 is still scanning)')
  })

  function hang(file: string): () => number {
    let count = 0
    os.files.onWrite = (path) => {
      if (path !== file) return
      count += 1
      return new Promise(() => {})
    }
    return () => count
  }

  function wait() {
    return waitForScsiDisk(hotplugOf(os), { target: 2, lun: 5 }, neverAborted)
  }

  const addHost = (name: string) => os.files.put(`/sys/class/scsi_host/${name}/scan`, '')
  const scans = (name: string) => os.files.readText(`/sys/class/scsi_host/${name}/scan`)

  async function plug(address: string, disk: string) {
    await os.files.put(`/sys/bus/scsi/devices/${address}/block/${disk}/dev`, '8:16\n')
    await os.files.makeSpecial(`/dev/${disk}`, { kind: 'block', major: 8, minor: 16 })
  }
})

function blockEvent(address: string, disk: string): string {
  return `add@/devices/x/${address}/block/${disk}\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=${disk}\0`
}
