import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { waitForPartition } from '../../src/hotplug/partition.ts'
import { kernelError } from '../../src/os/errors.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

describe('waitForPartition', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.put('/sys/class/block/vdb/size', '2048\n')
  })

  it('finds a partition by its number, whatever its name', async () => {
    await show('vdb', 'vdb1', 1)
    await show('vdb', 'vdb12', 2)
    await expect(wait('/dev/vdb', 2)).resolves.toBe('/dev/vdb12')
    await show('nvme0n1', 'nvme0n1p1', 1)
    await expect(wait('/dev/nvme0n1', 1)).resolves.toBe('/dev/nvme0n1p1')
  })

  it('waits until the kernel has read the partition table', async () => {
    const found = wait('/dev/vdb', 1)
    await turn()
    await show('vdb', 'vdb1', 1)
    os.uevents.send('add@/devices/pci0000:00/virtio3/block/vdb/vdb1\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/vdb1')
    expect(os.uevents.listeners.size).toBe(0)
  })

  it.each(['ENOENT', 'ENODEV'])('keeps waiting when the kernel reads the table anew (%s)', async (errno) => {
    await show('vdb', 'vdb1', 1)
    vi.spyOn(os.files, 'readText').mockRejectedValueOnce(kernelError('read', 'vdb1/partition', errno))
    const found = wait('/dev/vdb', 1)
    await turn()
    os.uevents.send('add@/devices/pci0000:00/virtio3/block/vdb/vdb1\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/vdb1')
  })

  it('is not woken by other disks', async () => {
    const found = wait('/dev/vdb', 1)
    await turn()
    await show('vdb', 'vdb1', 1)
    os.uevents.send('add@/devices/pci0000:00/virtio4/block/vdc/vdc1\0ACTION=add\0SUBSYSTEM=block\0')
    await turn()
    expect(os.uevents.listeners.size).toBe(1)
    os.uevents.send('add@/devices/pci0000:00/virtio3/block/vdb/vdb1\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/vdb1')
  })

  it('lists the partitions of the disk when the requested one does not appear', async () => {
    await show('vdb', 'vdb1', 1)
    const found = wait('/dev/vdb', 3)
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow(/uevent of partition 3 of \/dev\/vdb: .*sysfs shows vdb1$/)
  })

  const wait = (disk: string, number: number) => waitForPartition(hotplugOf(os), disk, number, neverAborted)

  async function show(disk: string, name: string, number: number) {
    const place = `/sys/class/block/${disk}/${name}`
    await os.files.put(`${place}/partition`, `${number}\n`)
    // sysfs shows each partition in the folder of its disk.
    for (const folder of [place, `/sys/class/block/${name}`])
      await os.files.put(`${folder}/dev`, `254:${number}\n`)
    await os.files.makeSpecial(`/dev/${name}`, { kind: 'block', major: 254, minor: number })
  }
})
