import { expect, it } from 'vitest'
import { tellDevices } from '../../../src/agent/introspection/tell-devices.ts'
import { eventLog } from '../../support/fakes/event-log.ts'
import { FakeUevents } from '../../support/fakes/fake-devices.ts'

it('reports plugged and unplugged devices, but not their parts', () => {
  const [events, uevents] = [eventLog(), new FakeUevents()]
  tellDevices(uevents, events)
  const send = (action: string, path: string, subsystem: string) =>
    uevents.send(`${action}@${path}\0ACTION=${action}\0DEVPATH=${path}\0SUBSYSTEM=${subsystem}\0`)
  send('add', '/devices/pci0000:00/0000:00:05.0', 'pci')
  send('bind', '/devices/pci0000:00/0000:00:05.0', 'pci')
  send('add', '/module/virtio_blk', 'module')
  send('remove', '/devices/pci0000:00/0000:00:05.0/virtio3/block/vdb', 'block')
  expect(events.after(0n, 10).events).toMatchObject([
    { deviceChanged: { action: 'add', path: '/sys/devices/pci0000:00/0000:00:05.0', subsystem: 'pci' } },
    { deviceChanged: { action: 'remove', subsystem: 'block' } },
  ])
})
