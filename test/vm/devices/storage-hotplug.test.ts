import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Storage } from '../../../src/gen/agent.ts'
import { qemuId, specKey } from '../../../src/host/spec/spec-key.ts'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { hotDisk } from '../../support/vm/hot-plug/hot-disk.ts'
import { type HotDisk, plugDisk, unplugDisk } from '../../support/vm/hot-plug/hot-plug.ts'

const DISK_PORT = specKey('disk-port')
const SCSI_PORT = specKey('scsi-port')
const MOUNT_POINT = '/run/kata-containers/sandbox/storage/hot'

describe.skipIf(cannotBoot() !== undefined)('a disk that a request waits for', () => {
  let guest: TestGuest
  let pod: Pod

  beforeAll(async () => {
    const devices = {
      [DISK_PORT]: { kind: 'root-port', slot: 9 },
      [SCSI_PORT]: { kind: 'root-port', slot: 10 },
    } as const
    // With this parameter the driver of SCSI controllers does not load.
    const append = [CRUN, 'scsi_mod.max_luns=none']
    const booted = await bootPod({ extra: { devices, backends: {} }, append })
    guest = booted.guest
    pod = booted.pod
  })
  afterAll(async () => {
    await guest?.stop()
  })

  it('that never appears is an error that names it and lists the disks that there are', async () => {
    const creating = createContainer('none', { source: '1e' })
    await expect(creating).rejects.toThrow(
      new RegExp(
        'Timeout after 3s waiting for uevent of a block device at PCI path 1e: ' +
          'no /sys/devices/pci0000:00/0000:00:1e.0/virtio\\*/block/\\*; ' +
          // The module of the power button may be loaded meanwhile.
          'during the wait (no uevents|[0-9]+ uevents, of which 0 match: .*LNXPWRBN.*); ' +
          'rescan by the kernel: done; ' +
          'sysfs shows .*0000:00:05.0 \\(virtio-pci\\), 0000:00:09.0 \\(pcieport\\)',
      ),
    )
  })

  it('whose driver does not load is an error with the output of modprobe', async () => {
    const creating = createContainer('driverless', { driver: 'scsi', source: '1:3' })
    const controller = { driver: 'virtio-scsi-pci', id: 'scsi', bus: qemuId(SCSI_PORT), addr: '0x0' }
    await guest.guest.vm.qmp.execute('device_add', controller, guest.guest.vm.gone)
    await expect(creating).rejects.toThrow(
      /SCSI disk 1:3: .* uevents, .*@.*; drivers not loaded: .*could not insert 'virtio_scsi': Invalid argument/,
    )
  })

  it('is found when it is plugged in behind a bridge', async () => {
    const creating = createContainer('waiting')
    const disk = diskWith('first')
    await plug(disk)
    await creating
    await expect(nameOn('waiting')).resolves.toBe('first')
    await pod.remove('waiting')
    await unplug(disk)
  })

  it('may be unplugged while it is mounted: the container runs on, and another disk can take its place', async () => {
    const [pulled, next] = [diskWith('pulled'), diskWith('next')]
    await plug(pulled)
    await createContainer('robbed')
    await unplug(pulled)
    await expect(nameOn('robbed')).rejects.toThrow('Input/output error')
    await expect(createContainer('joining')).rejects.toThrow(/hot: disk \/dev\/vd[a-z] was removed/)
    await expect(createContainer('late', { mountPoint: `${MOUNT_POINT}-late` })).rejects.toThrow(
      /a block device at PCI path 09\/00: no .*\/virtio\*\/block\/\*/,
    )

    await pod.remove('robbed')
    const mounts = await pod.output('mounts', 'cat /guest/proc/1/mounts', { mounts: [GUEST_PROC] })
    expect(mounts).not.toContain(MOUNT_POINT)
    await plug(next)
    await createContainer('after')
    await expect(nameOn('after')).resolves.toBe('next')
    await pod.remove('after')
    await unplug(next)
  })

  async function createContainer(id: string, changes: Partial<Storage> = {}): Promise<void> {
    const storage = storageOf({
      ...{ driver: 'blk', source: '09/00', fstype: 'ext4', mountPoint: MOUNT_POINT },
      ...changes,
    })
    await pod.run(id, ['sleep', '1000'], { mounts: [bind(storage.mountPoint, '/vol')], storages: [storage] })
  }

  async function nameOn(id: string): Promise<string> {
    const reading = await pod.add(id, 'reading', ['cat', '/vol/name'])
    const [output, errors] = [await reading.readAll(), await reading.readAll('stderr')]
    if ((await reading.wait()) !== 0) throw new Error(errors.toString())
    return output.toString()
  }

  const diskWith = (name: string) => hotDisk(guest.folder, name, { bus: DISK_PORT, slot: 0 })
  const plug = (disk: HotDisk) => plugDisk(guest.guest.vm.qmp, disk, guest.guest.vm.gone)
  const unplug = (disk: HotDisk) => unplugDisk(guest.guest.vm.qmp, disk, guest.guest.vm.gone)
})
