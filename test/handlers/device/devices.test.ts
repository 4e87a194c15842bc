import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Device } from '../../../src/gen/agent.ts'
import { createDeviceHandlers } from '../../../src/handlers/device/devices.ts'
import { DEVICE_TYPES } from '../../../src/handlers/device/handler-table.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { deviceDependenciesOf } from '../../support/handlers/device/device-dependencies.ts'

const whole = { type: 'mmioblk', vmPath: '/dev/vdb', containerPath: '/dev/data' }

describe('createDeviceHandlers', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.put('/sys/class/block/vdb/dev', '254:16\n')
    await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
  })

  it('returns nothing when nothing is requested', async () => {
    await expect(find()).resolves.toMatchObject({ updates: [], added: [], pciAddresses: new Map() })
  })

  it.each([
    [{ type: '' }, 'invalid type for device /dev/data'],
    [{ vmPath: '' }, 'device /dev/data: id and vm_path are empty'],
    [{ containerPath: '' }, 'device /dev/vdb: container_path is empty'],
    [{ vmPath: '', id: '1' }, 'device /dev/data: vm_path is empty, want one for type mmioblk'],
    [{ type: 'scsi' }, 'device /dev/data: id is empty, want one for type scsi'],
    [{ type: 'scsi', id: '1' }, 'SCSI address "1"'],
    [{ type: 'blk', id: '2/99' }, 'PCI path "2/99"'],
    [{ type: 'usb' }, 'Failed to find the device handler usb'],
    [{ vmPath: '/dev/vdb\0' }, 'contains a NUL'],
  ])('refuses %j, and waits for nothing', async (changes, message) => {
    const finding = expect(find({ ...whole, vmPath: '/dev/vdz' }, { ...whole, ...changes })).rejects
    await finding.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await finding.toThrow(message)
    expect(os.uevents.listeners.size).toBe(0)
  })

  it.each(['blk-ccw', 'vfio-ap', 'vfio-ap-cold'])(
    'answers UNIMPLEMENTED for %s, and says why',
    async (type) => {
      const finding = expect(find({ ...whole, type })).rejects
      await finding.toMatchObject({ code: 'UNIMPLEMENTED' })
      await finding.toThrow(`device type ${type}: only supported on s390x`)
    },
  )

  it('waits for all at once, and stops when one does not appear', async () => {
    const finding = find({ ...whole, vmPath: '/dev/vdy' }, whole, { ...whole, vmPath: '/dev/vdz' })
    await turn()
    expect(os.uevents.listeners.size).toBe(2)
    os.clock.advance(3000)
    await expect(finding).rejects.toThrow('block device vdy')
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  })

  it('returns the updated paths of the spec before any wait', () => {
    const gk = { ...whole, type: 'vfio-pci-gk', containerPath: '/dev/gk' }
    const vfio = { ...whole, type: 'vfio-pci', containerPath: '/dev/vfio/7' }
    const requests = [whole, gk, vfio].map((device) => Device.fromPartial(device))
    const { updatedPaths } = createDeviceHandlers(deviceDependenciesOf(os))
    expect(updatedPaths(requests)).toEqual(['/dev/data', '/dev/vfio/7'])
    expect(() => updatedPaths([Device.fromPartial({ ...whole, type: 'usb' })])).toThrow('device handler usb')
  })

  it('lists its types', () => {
    expect(DEVICE_TYPES).toEqual(['blk', 'mmioblk', 'nvdimm', 'scsi', 'vfio-pci', 'vfio-pci-gk'])
  })

  function find(...devices: Partial<Device>[]) {
    const requests = devices.map((device) => Device.fromPartial(device))
    return createDeviceHandlers(deviceDependenciesOf(os)).waitFor(requests, neverAborted)
  }
})
