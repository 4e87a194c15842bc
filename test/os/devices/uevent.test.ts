import { describe, expect, it } from 'vitest'
import { parseUevent } from '../../../src/os/devices/uevent.ts'

/** As Linux 6.1 sent them. */
const RECORDED = {
  block:
    'add@/devices/virtual/block/loop0\0ACTION=add\0DEVPATH=/devices/virtual/block/loop0\0SUBSYSTEM=block\0' +
    'SYNTH_UUID=0\0MAJOR=7\0MINOR=0\0DEVNAME=loop0\0DEVTYPE=disk\0DISKSEQ=1\0SEQNUM=824\0',
  net:
    'add@/devices/virtual/net/lo\0ACTION=add\0DEVPATH=/devices/virtual/net/lo\0SUBSYSTEM=net\0SYNTH_UUID=0\0' +
    'INTERFACE=lo\0IFINDEX=1\0SEQNUM=823\0',
  virtio:
    'add@/devices/pci0000:00/0000:00:09.0/virtio4\0ACTION=add\0DEVPATH=/devices/pci0000:00/0000:00:09.0/virtio4\0' +
    'SUBSYSTEM=virtio\0MODALIAS=virtio:d00000002v00001AF4\0SEQNUM=1201\0',
}

describe('parseUevent', () => {
  it('reads the event of a disk', () => {
    expect(parseUevent(RECORDED.block)).toEqual({
      action: 'add',
      devicePath: '/devices/virtual/block/loop0',
      subsystem: 'block',
      deviceName: 'loop0',
      interfaceName: '',
      modalias: '',
    })
  })

  it('reads the event of a network interface', () => {
    expect(parseUevent(RECORDED.net)).toMatchObject({ subsystem: 'net', interfaceName: 'lo', deviceName: '' })
  })

  it('reads the alias of the driver', () => {
    expect(parseUevent(RECORDED.virtio)).toMatchObject({
      action: 'add',
      modalias: 'virtio:d00000002v00001AF4',
    })
  })

  it('reads action and path from the first line', () => {
    expect(parseUevent('remove@/devices/x\0SUBSYSTEM=block\0')).toMatchObject({
      action: 'remove',
      devicePath: '/devices/x',
    })
  })

  it('keeps equals signs of a value', () => {
    expect(parseUevent('add@/x\0DEVNAME=a=b\0')?.deviceName).toBe('a=b')
  })

  it.each([
    ['nothing', ''],
    ['what udev sends to its own listeners', 'libudev\0\xfe\xed\xca\xfe'],
    ['a line without action', '@/devices/x\0ACTION=add\0'],
  ])('is undefined for %s', (_, text) => {
    expect(parseUevent(text)).toBeUndefined()
  })
})
