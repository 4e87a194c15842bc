import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { cancelled, neverAborted } from '../../src/base/abort.ts'
import { type Probe, type WantedDevice, waitForDevice } from '../../src/hotplug/wait-for-device.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { hotplugOf } from '../support/handlers/device/device-dependencies.ts'

describe('waitForDevice', () => {
  let os: FakeOs
  let device: string | undefined
  let looks: number

  beforeEach(() => {
    os = new FakeOs()
    device = undefined
    looks = 0
  })

  it('rescans when no event matched for a second, and probes again', async () => {
    const found = wait({
      rescan: async () => {
        device = '/dev/late'
      },
    })
    await turn()
    os.uevents.send('add@/devices/other\0ACTION=add\0SUBSYSTEM=net\0')
    os.clock.advance(1000)
    await expect(found).resolves.toBe('/dev/late')
    expect(os.clock.sleeping).toBe(0)
  })

  it('rescans although an event matched, which may be that of another device', async () => {
    let rescans = 0
    const found = wait({
      rescan: async () => {
        rescans += 1
      },
    })
    await turn()
    os.uevents.send('add@/devices/other\0ACTION=add\0SUBSYSTEM=block\0')
    await turn()
    os.clock.advance(1000)
    await turn()
    os.clock.advance(1000)
    device = '/dev/found'
    os.uevents.send('add@/devices/mine\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/found')
    expect(rescans).toBe(1)
  })

  it('rescans repeatedly with growing pauses', async () => {
    const rescan = vi.fn(async () => {})
    const found = wait({ rescan }, [], 60_000)
    const times: number[] = []
    for (let ms = 0; ms < 20_000; ms += 500) {
      await turn()
      if (rescan.mock.calls.length > times.length) times.push(ms)
      os.clock.advance(500)
    }
    expect(times).toEqual([1000, 3000, 7000, 15_000])
    device = '/dev/found'
    os.uevents.send('add@/devices/mine\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/found')
    expect(os.clock.sleeping).toBe(0)
  })

  it('does not rescan after the timeout', async () => {
    const rescan = vi.fn(async () => {})
    const found = wait({ rescan })
    await turn()
    os.clock.advance(1000)
    await turn()
    os.clock.advance(2000)
    await expect(found).rejects.toThrow('rescan by the kernel: done')
    expect(rescan).toHaveBeenCalledTimes(1)
  })

  it('does not rescan when the device appears within a second', async () => {
    const rescan = vi.fn(async () => {})
    const found = wait({ rescan })
    await turn()
    device = '/dev/found'
    os.clock.advance(999)
    os.uevents.send('add@/devices/mine\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/found')
    os.clock.advance(1)
    await turn()
    expect(rescan).not.toHaveBeenCalled()
  })

  it('probes sysfs only after matching events', async () => {
    const found = wait()
    await turn()
    for (let n = 0; n < 50; n += 1) os.uevents.send(`add@/devices/o${n}\0ACTION=add\0SUBSYSTEM=net\0`)
    await turn()
    expect(looks).toBe(1)
    device = '/dev/found'
    os.uevents.send('add@/devices/mine\0ACTION=add\0SUBSYSTEM=block\0')
    await expect(found).resolves.toBe('/dev/found')
    expect(looks).toBe(2)
  })

  it('reports what sysfs shows, the rescan and the failed drivers', async () => {
    const failures = ['modprobe: ERROR: could not insert virtio_blk: Exec format error']
    const found = wait(
      {
        candidates: async () => ['0000:00:03.0 (virtio-pci)', '0000:00:09.0 (no driver)'],
        rescan: async () => Promise.reject(new Error('write /sys/bus/pci/rescan: EROFS')),
      },
      failures,
    )
    await turn()
    os.clock.advance(1000)
    await turn()
    os.clock.advance(2000)
    await expect(found).rejects.toThrow(
      'Timeout after 3s waiting for uevent of a thing: no thing; during the wait no uevents; ' +
        'rescan by the kernel: write /sys/bus/pci/rescan: EROFS; ' +
        'sysfs shows 0000:00:03.0 (virtio-pci), 0000:00:09.0 (no driver); ' +
        'drivers not loaded: modprobe: ERROR: could not insert virtio_blk: Exec format error',
    )
    expect(os.uevents.listeners.size).toBe(0)
  })

  it('truncates a long list of candidates', async () => {
    const names = Array.from({ length: 40 }, (_, n) => `d${n}`)
    const found = wait({ candidates: async () => names })
    await turn()
    os.clock.advance(3000)
    await expect(found).rejects.toThrow('d30, d31, 8 more')
  })

  it('times out while its first probe is stuck in the kernel, and says so', async () => {
    const found = wait({ probe: () => new Promise(() => {}), candidates: async () => ['d1'] })
    await turn()
    os.clock.advance(3000)
    await turn()
    os.clock.advance(500)
    await expect(found).rejects.toThrow(
      'a thing: no answer from sysfs; the last probe of sysfs has not ended after 3.5s; during the wait no uevents; ' +
        'sysfs shows d1',
    )
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  })

  it('probes a last time at the timeout', async () => {
    const found = wait()
    await turn()
    device = '/dev/silent'
    os.clock.advance(3000)
    await expect(found).resolves.toBe('/dev/silent')
    expect(os.clock.sleeping).toBe(0)
  })

  it('accepts the result of a probe that was running at the timeout', async () => {
    const look = Promise.withResolvers<Probe<string>>()
    const found = wait({ probe: () => look.promise })
    await turn()
    os.clock.advance(3000)
    await turn()
    look.resolve({ found: '/dev/slow' })
    await expect(found).resolves.toBe('/dev/slow')
    expect(os.clock.sleeping).toBe(0)
  })

  it('reports the last finished probe when the next one is stuck', async () => {
    const probe = vi.fn<() => Promise<Probe<string>>>(() => new Promise(() => {}))
    probe.mockResolvedValueOnce({ missing: 'thing' })
    const found = wait({ probe })
    await turn()
    os.clock.advance(1000)
    os.uevents.send('add@/devices/mine\0ACTION=add\0SUBSYSTEM=block\0')
    await turn()
    os.clock.advance(2000)
    await turn()
    os.clock.advance(500)
    await expect(found).rejects.toThrow(
      'a thing: no thing; the last probe of sysfs has not ended after 2.5s; during the wait 1 uevents',
    )
  })

  it('can be cancelled while a probe is stuck', async () => {
    const call = new AbortController()
    const probe = () => new Promise<never>(() => {})
    const waiting = waitForDevice(
      hotplugOf(os),
      { description: 'a thing', probe, matches: isBlock },
      call.signal,
    )
    await turn()
    call.abort(cancelled())
    await expect(waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  })

  it('times out while the rescan and the list of candidates are stuck', async () => {
    const found = wait({ rescan: () => new Promise(() => {}), candidates: () => new Promise(() => {}) })
    await turn()
    os.clock.advance(1000)
    await turn()
    os.clock.advance(2000)
    await turn()
    os.clock.advance(500)
    await expect(found).rejects.toThrow(
      'rescan by the kernel: has not ended; sysfs shows nothing within 500 ms',
    )
    expect(os.clock.sleeping).toBe(0)
  })

  it('keeps its error short in a flood of events, and includes the matching ones', async () => {
    const failures = Array.from({ length: 8 }, (_, n) => `modprobe: ERROR: ${n} ${'x'.repeat(5000)}`)
    const names = Array.from({ length: 400 }, (_, n) => `device ${n} ${'y'.repeat(500)}`)
    const found = wait({ candidates: async () => names }, failures)
    await turn()
    os.uevents.send('add@/devices/mine\0ACTION=add\0SUBSYSTEM=block\0')
    for (let n = 0; n < 5000; n += 1) {
      os.uevents.send(`add@/devices/${n}/${'z'.repeat(1900)}/end${n}\0ACTION=add\0SUBSYSTEM=net\0`)
    }
    await turn()
    os.clock.advance(3000)
    const error = await found.catch((reason: Error) => reason)
    const text = error instanceof Error ? error.message : ''
    expect(text).toContain('5001 uevents, of which 1 match: among them add@/devices/mine, add@/devices/4993/')
    for (const part of ['/end4999', '368 more', 'drivers not loaded: modprobe: ERROR: 0'])
      expect(text).toContain(part)
    expect(text.length).toBeLessThan(8000)
  })

  it('ends when its call is cancelled during a probe, despite retryMs', async () => {
    const call = new AbortController()
    const unhandled: unknown[] = []
    const record = (reason: unknown) => unhandled.push(reason)
    process.on('unhandledRejection', record)
    try {
      const probe = async (): Promise<Probe<string>> => {
        call.abort(cancelled())
        return { missing: 'thing' }
      }
      const wanted = { description: 'a thing', probe, matches: isBlock, lookAgainMs: 50 }
      const waiting = waitForDevice(hotplugOf(os), wanted, call.signal)
      await expect(waiting).rejects.toMatchObject({ code: 'CANCELLED' })
      await turn()
    } finally {
      process.off('unhandledRejection', record)
    }
    expect(unhandled).toEqual([])
    expect(os.clock.sleeping).toBe(0)
  })

  function wait(
    parts: Partial<WantedDevice<string>> = {},
    failures: readonly string[] = [],
    timeoutMs = 3000,
  ) {
    const probe = async (): Promise<Probe<string>> => {
      looks += 1
      return device === undefined ? { missing: 'thing' } : { found: device }
    }
    const wanted = { description: 'a thing', probe, matches: isBlock, ...parts }
    return waitForDevice({ ...hotplugOf(os), timeoutMs, drivers: { failures } }, wanted, neverAborted)
  }
})

const isBlock: WantedDevice<string>['matches'] = ({ subsystem }) => subsystem === 'block'
