import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { waitForNamedBlockDevice } from '../../src/hotplug/named-block-device.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

describe('waitForNamedBlockDevice', () => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
  })

  it('finds a present disk', async () => {
    await plug()
    await expect(wait('/dev/vdb')).resolves.toBe('/dev/vdb')
  })

  it('finds a disk when its event comes', async () => {
    const found = wait('/dev/vdb')
    await turn()
    await plug()
    os.uevents.send('add@/devices/platform/LNRO0005:01/virtio3/block/vdb\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/vdb')
  })

  it('does not accept a regular file as the disk', async () => {
    await os.files.put('/dev/vdb', '')
    const found = wait('/dev/vdb')
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow('block device vdb: no /sys/class/block/vdb')
  })

  it.each(['', 'vdb', '/dev/', '/dev/../etc/passwd', '/dev/mapper/x', '/dev/vdb\0', '/devvdb'])(
    'refuses %j',
    async (node) => {
      await expect(wait(node)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    },
  )

  const wait = (node: string) => waitForNamedBlockDevice(hotplugOf(os), node, neverAborted)

  async function plug() {
    await os.files.put('/sys/class/block/vdb/dev', '254:16\n')
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
  }
})
