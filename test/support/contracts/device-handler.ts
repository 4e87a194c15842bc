import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { Device } from '../../../src/gen/agent.ts'
import { createDeviceHandlers } from '../../../src/handlers/device/devices.ts'
import { deviceHandler } from '../../../src/handlers/device/handler-table.ts'
import { FakeOs } from '../fakes/fake-os.ts'
import { deviceDependenciesOf } from '../handlers/device/device-dependencies.ts'

export interface DeviceHandlerCase {
  readonly device: Partial<Device> & { readonly type: string }
  readonly plug: (os: FakeOs) => Promise<void>
  /** Adds buses and controllers before the device. */
  readonly prepare?: (os: FakeOs) => Promise<void>
}

export function deviceHandlerContract(name: string, given: DeviceHandlerCase): void {
  const device = Device.fromPartial({ containerPath: '/dev/in-container', ...given.device })

  describe(`${name} as a device handler`, () => {
    it('finds a present device', async () => {
      const os = await machine()
      await given.plug(os)
      await expect(find(os)).resolves.toBeDefined()
      expectQuiet(os)
    })

    it('finds a device that appears later', async () => {
      const os = await machine()
      const found = find(os)
      await turn()
      expect(os.uevents.listeners.size).toBeGreaterThan(0)
      await given.plug(os)
      await expect(found).resolves.toBeDefined()
      expectQuiet(os)
    })

    it('reports what it waited for after the timeout', async () => {
      const os = await machine()
      const found = find(os)
      await turn()
      os.clock.advance(3000)
      await expect(found).rejects.toThrow(/^Timeout after 3s waiting for uevent of /)
      expectQuiet(os)
    })

    it('stops when its call is cancelled', async () => {
      const os = await machine()
      const call = new AbortController()
      const found = find(os, call.signal)
      await turn()
      call.abort(cancelled())
      await expect(found).rejects.toMatchObject({ code: 'CANCELLED' })
      expectQuiet(os)
    })

    it('is listed among those of the agent', () => {
      expect(() => deviceHandler(device.type)).not.toThrow()
    })
  })

  async function machine(): Promise<FakeOs> {
    const os = new FakeOs()
    await given.prepare?.(os)
    return os
  }

  function find(os: FakeOs, signal = neverAborted) {
    return createDeviceHandlers(deviceDependenciesOf(os)).waitFor([device], signal)
  }

  function expectQuiet(os: FakeOs): void {
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  }
}
