import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Device } from '../../../src/gen/agent.ts'
import { createDeviceHandlers } from '../../../src/handlers/device/devices.ts'
import { deviceHandlerContract } from '../../support/contracts/device-handler.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { deviceDependenciesOf } from '../../support/handlers/device/device-dependencies.ts'

const PCI = '/sys/devices/pci0000:00/0000:00:05.0'

const KINDS = {
  blk: { device: { id: '05', vmPath: '/dev/vdx' }, sysfs: `${PCI}/virtio3/block/vdb`, prepare: PCI },
  mmioblk: { device: { vmPath: '/dev/vdb' }, sysfs: '/sys/class/block/vdb', prepare: '/sys/class/block' },
  nvdimm: { device: { vmPath: '/dev/pmem1' }, sysfs: '/sys/class/block/pmem1', prepare: '/sys/class/block' },
  scsi: {
    device: { id: '1:3' },
    sysfs: '/sys/bus/scsi/devices/0:0:1:3/block/sdb',
    prepare: '/sys/class/scsi_host',
  },
} as const

for (const [type, { device, sysfs, prepare }] of Object.entries(KINDS)) {
  deviceHandlerContract(type, {
    device: { type, ...device },
    prepare: (os) => os.files.makeDirectories(prepare),
    plug: (os) => plug(os, sysfs),
  })
}

describe.each(Object.entries(KINDS))('%s', (type, { device, sysfs }) => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await plug(os, sysfs)
  })

  it("gives the container the guest's numbers of the disk, at the container's path", async () => {
    const request = Device.fromPartial({ type, containerPath: '/dev/data', ...device })
    await expect(find(request)).resolves.toMatchObject({
      updates: [{ containerPath: '/dev/data', type: 'b', major: 254, minor: 16 }],
      added: [],
    })
  })

  const find = (request: Device) =>
    createDeviceHandlers(deviceDependenciesOf(os)).waitFor([request], neverAborted)
})

describe('blk without a PCI path', () => {
  it('uses the node that the host names', async () => {
    const os = new FakeOs()
    await plug(os, '/sys/class/block/vdb')
    const request = Device.fromPartial({ type: 'blk', vmPath: '/dev/vdb', containerPath: '/dev/data' })
    const found = createDeviceHandlers(deviceDependenciesOf(os)).waitFor([request], neverAborted)
    await expect(found).resolves.toMatchObject({ updates: [{ major: 254, minor: 16 }] })
  })
})

async function plug(os: FakeOs, sysfs: string): Promise<void> {
  const name = sysfs.slice(sysfs.lastIndexOf('/') + 1)
  await os.files.put(`${sysfs}/dev`, '254:16\n')
  await os.files.makeSpecial(`/dev/${name}`, { kind: 'block', major: 254, minor: 16 })
  const path = sysfs.replace('/sys/class/block', '/sys/devices/x/block').replace('/sys', '')
  os.uevents.send(`add@${path}\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=${name}\0`)
}
