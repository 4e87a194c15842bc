import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { waitForVfioGroup } from '../../src/hotplug/vfio-group.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

const NODE = '/dev/vfio/5'

describe('waitForVfioGroup', () => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
  })

  it('finds the node of a present group', async () => {
    await addNode(NODE)
    await expect(wait()).resolves.toBe(NODE)
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  })

  it('finds the node when its event comes, and ignores other groups', async () => {
    await addNode('/dev/vfio/vfio')
    const found = wait()
    await turn()
    await addNode('/dev/vfio/55')
    os.uevents.send(groupEvent('55'))
    await turn()
    await addNode(NODE)
    os.uevents.send(groupEvent('5'))
    await expect(found).resolves.toBe(NODE)
  })

  it('does not accept a regular file as the node', async () => {
    await os.files.put(NODE, '')
    const found = wait()
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow(`VFIO group 5: no device node ${NODE}; during the wait no uevents`)
  })

  it('lists the present groups when its own does not appear', async () => {
    for (const group of ['4', '6']) await os.files.makeDirectories(`/sys/devices/virtual/vfio/${group}`)
    const found = wait()
    await turn()
    os.uevents.send(groupEvent('6'))
    os.clock.advance(3000)
    await expect(found).rejects.toThrow(
      '1 uevents, of which 0 match: add@/devices/virtual/vfio/6; sysfs shows 4, 6',
    )
  })

  const wait = () => waitForVfioGroup(hotplugOf(os), '5', neverAborted)

  const addNode = (path: string) => os.files.makeSpecial(path, { kind: 'character', major: 241, minor: 0 })
})

function groupEvent(group: string): string {
  const path = `/devices/virtual/vfio/${group}`
  return `add@${path}\0ACTION=add\0DEVPATH=${path}\0SUBSYSTEM=vfio\0MAJOR=241\0MINOR=0\0DEVNAME=vfio/${group}\0SEQNUM=1874\0`
}
