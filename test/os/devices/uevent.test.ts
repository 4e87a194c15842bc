import { describe, expect, it } from 'vitest'
import { parseUevent } from '../../../src/os/devices/uevent.ts'
import { RECORDED_UEVENTS } from '../../fixtures/uevents.ts'

describe('parseUevent', () => {
  it('reads the event of a disk', () => {
    expect(parseUevent(RECORDED_UEVENTS.block)).toEqual({
      action: 'add',
      devicePath: '/devices/virtual/block/loop0',
      subsystem: 'block',
      deviceName: 'loop0',
      interfaceName: '',
      modalias: '',
    })
  })

  it('reads the event of a network interface', () => {
    expect(parseUevent(RECORDED_UEVENTS.net)).toMatchObject({
      subsystem: 'net',
      interfaceName: 'lo',
      deviceName: '',
    })
  })

  it('tells a new generation of the machine', () => {
    const event = 'change@/devices/platform/QEMUVGID:00\0SUBSYSTEM=platform\0NEW_VMGENID=1\0'
    expect(parseUevent(event)?.isNewGeneration).toBe(true)
    expect(parseUevent(RECORDED_UEVENTS.block)?.isNewGeneration).toBeUndefined()
  })

  it('reads the alias of the driver', () => {
    expect(parseUevent(RECORDED_UEVENTS.virtio)).toMatchObject({
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
