import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Device } from '../../../src/gen/agent.ts'
import { createDeviceHandlers } from '../../../src/handlers/device/devices.ts'
import { deviceHandlerContract } from '../../support/contracts/device-handler.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { deviceDependenciesOf } from '../../support/handlers/device/device-dependencies.ts'
import { addPciBus, pciDriverOf, plugPci } from '../../support/handlers/device/pci-bus.ts'

deviceHandlerContract('vfio-pci', {
  device: { type: 'vfio-pci', id: 'vfio', options: ['0000:1a:02.3=06'] },
  prepare: addPciBus,
  plug: (os) => plugPci(os, '0000:00:06.0', '5'),
})
deviceHandlerContract('vfio-pci-gk', {
  device: { type: 'vfio-pci-gk', id: 'vfio', options: ['0000:1a:02.3=06'] },
  prepare: addPciBus,
  plug: (os) => plugPci(os, '0000:00:06.0', '5'),
})

describe('passed-through PCI devices', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await addPciBus(os)
    await plugPci(os, '0000:00:06.0', '5')
    await plugPci(os, '0000:00:07.0', '5')
    await plugPci(os, '0000:00:08.0', '6')
  })

  it('are bound to vfio-pci, and the container gets the node of their group', async () => {
    await expect(find('vfio-pci', '0000:1A:02.3=06', '0000:1a:02.4=07')).resolves.toMatchObject({
      updates: [{ containerPath: '/dev/x', type: 'c', major: 240, minor: 5, newPath: '/dev/vfio/5' }],
      pciAddresses: new Map([
        ['0000:1a:02.3', '0000:00:06.0'],
        ['0000:1a:02.4', '0000:00:07.0'],
      ]),
    })
    expect(await driverOf('0000:00:06.0')).toBe('vfio-pci')
    expect(await driverOf('0000:00:07.0')).toBe('vfio-pci')
  })

  it('are rebound to their drivers when the request fails later', async () => {
    const found = await find('vfio-pci', '0000:1a:02.3=06')
    await found.onFailure()
    expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
  })

  it('are recorded before they are bound, so that the next agent can rebind them', async () => {
    const told: string[] = []
    const options = ['0000:1a:02.3=06']
    const device = Device.fromPartial({ type: 'vfio-pci', id: 'vfio', containerPath: '/dev/x', options })
    const first = createDeviceHandlers(deviceDependenciesOf(os))
    await first.waitFor([device], neverAborted, (address) => void told.push(address))
    expect(told).toEqual(['0000:00:06.0'])
    await createDeviceHandlers(deviceDependenciesOf(os)).bindBack(told)
    expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
  })

  it('are rebound to their drivers when another device does not appear', async () => {
    const vfio = { type: 'vfio-pci', id: 'vfio', containerPath: '/dev/x', options: ['0000:1a:02.3=06'] }
    const disk = { type: 'mmioblk', vmPath: '/dev/vdz', containerPath: '/dev/y' }
    const requests = [vfio, disk].map((device) => Device.fromPartial(device))
    const finding = createDeviceHandlers(deviceDependenciesOf(os)).waitFor(requests, neverAborted)
    await turn()
    expect(await driverOf('0000:00:06.0')).toBe('vfio-pci')
    os.clock.advance(3000)
    await expect(finding).rejects.toThrow('block device vdz')
    expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
  })

  it('must be in one IOMMU group, otherwise all are rebound to their drivers', async () => {
    await expect(find('vfio-pci', '0000:1a:02.3=06', '0000:1a:02.4=08')).rejects.toThrow(
      'PCI device 0000:00:08.0: in guest IOMMU group 6, want 5',
    )
    expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
    expect(await driverOf('0000:00:08.0')).toBe('mlx5_core')
  })

  it('need an IOMMU', async () => {
    await os.files.removeFile('/sys/bus/pci/devices/0000:00:06.0/iommu_group')
    await expect(find('vfio-pci', '0000:1a:02.3=06')).rejects.toThrow('failed to get VFIO group')
    expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
  })

  it('need an option each', async () => {
    await expect(find('vfio-pci')).rejects.toThrow('failed to get VFIO group')
  })

  it('stay with their driver when the guest kernel uses them', async () => {
    await expect(find('vfio-pci-gk', '0000:1a:02.3=06')).resolves.toMatchObject({
      updates: [],
      pciAddresses: new Map([['0000:1a:02.3', '0000:00:06.0']]),
    })
    expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
  })

  it('without a guest path are skipped', async () => {
    await expect(find('vfio-pci-gk', '0000:1a:02.3=', '0000:1a:02.4=07')).resolves.toMatchObject({
      pciAddresses: new Map([['0000:1a:02.4', '0000:00:07.0']]),
    })
  })

  it.each(['', '0000:1a:02.3', '1a:02.3=06', '0000:1a:02.8=06', '0000:1a:02.3=6'])(
    'refuse the option %j',
    async (option) => {
      await expect(find('vfio-pci', option)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      expect(await driverOf('0000:00:06.0')).toBe('mlx5_core')
    },
  )

  it('add the InfiniBand devices', async () => {
    await os.files.makeSpecial('/dev/infiniband/uverbs0', { kind: 'character', major: 231, minor: 192 })
    await os.files.makeDirectories('/dev/infiniband/by-path')
    await expect(find('vfio-pci-gk', '0000:1a:02.3=06')).resolves.toMatchObject({
      added: [{ path: '/dev/infiniband/uverbs0', type: 'c', major: 231, minor: 192 }],
    })
  })

  it('report a driver that could not be loaded', async () => {
    await os.files.removeTree('/sys/bus/pci/drivers/vfio-pci')
    os.tools.script(() => ({ exitCode: 1, stderr: 'modprobe: FATAL: Module vfio-pci not found\n' }))
    await expect(find('vfio-pci', '0000:1a:02.3=06')).rejects.toThrow('Module vfio-pci not found')
  })

  function find(type: string, ...options: string[]) {
    const device = Device.fromPartial({ type, id: 'vfio', containerPath: '/dev/x', options })
    return createDeviceHandlers(deviceDependenciesOf(os)).waitFor([device], neverAborted)
  }

  const driverOf = (address: string) => pciDriverOf(os, address)
})
