import { beforeEach, describe, expect, it } from 'vitest'
import { PciBus } from '../../../src/hotplug/pci/pci-bus.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

describe('PciBus', () => {
  let bus: PciBus
  let rescans: PromiseWithResolvers<void>[]

  beforeEach(() => {
    const os = new FakeOs()
    rescans = []
    os.files.write = (path, data) => {
      expect([path, data]).toEqual(['/sys/bus/pci/rescan', '1'])
      const rescan = Promise.withResolvers<void>()
      rescans.push(rescan)
      return rescan.promise
    }
    bus = new PciBus(os.files)
  })

  it('shares one rescan among the callers that arrive during another, and starts it afterwards', async () => {
    const first = bus.rescan()
    const others = [bus.rescan(), bus.rescan(), bus.rescan()]
    expect(rescans).toHaveLength(1)
    rescans[0]?.resolve()
    await first
    expect(rescans).toHaveLength(2)
    const late = bus.rescan()
    rescans[1]?.resolve()
    await Promise.all(others)
    rescans[2]?.resolve()
    await late
    expect(rescans).toHaveLength(3)
  })

  it('reports a failed rescan to its own callers only', async () => {
    const [first, second] = [bus.rescan(), bus.rescan()]
    rescans[0]?.reject(new Error('write /sys/bus/pci/rescan: EIO'))
    await expect(first).rejects.toThrow('EIO')
    rescans[1]?.resolve()
    await second
  })

  it('starts a new rescan after the last has ended', async () => {
    for (const number of [0, 1]) {
      const asked = bus.rescan()
      rescans[number]?.resolve()
      await asked
    }
    expect(rescans).toHaveLength(2)
  })
})
