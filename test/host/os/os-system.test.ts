import { writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { buildAddon } from '../../../src/build/native.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import type { Uevent } from '../../../src/os/devices/uevent.ts'
import type { Uevents } from '../../../src/os/devices/uevents.ts'
import { linuxUevents } from '../../../src/os/devices/uevents.ts'
import { linuxSystem } from '../../../src/os/process/system.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { FakeUevents } from '../../support/fakes/fake-devices.ts'
import { makeNetworkNamespace } from '../../support/host/network-namespace.ts'
import { realNative } from '../../support/os/real-native.ts'

// Tests that change the machine restore its previous state.
describe('linuxSystem', () => {
  it('sets the name of the machine', async () => {
    const system = linuxSystem(await realNative())
    const name = hostname()
    system.setHostname(`${name.slice(0, 50)}-test`)
    const changed = hostname()
    system.setHostname(name)
    expect(changed).toBe(`${name.slice(0, 50)}-test`)
    expect(() => system.setHostname('x'.repeat(65))).toThrow('EINVAL')
  })
})

describe('linuxFiles', () => {
  it('reads a whole sysctl of more than a page', async () => {
    const namespace = await makeNetworkNamespace()
    try {
      const path = '/proc/sys/net/ipv4/ip_local_reserved_ports'
      const odd = (first: number) => Array.from({ length: 750 }, (_, index) => first + 2 * index).join(',')
      namespace.run('sh', '-c', `{ printf ${odd(2001)}; printf ${odd(4001)}; } > ${path}`)
      const script = join(import.meta.dirname, 'read-file.ts')
      const text = namespace.run(process.execPath, script, await buildAddon(), path)
      expect(text).toBe(`${odd(2001)},${odd(4001)}\n`)
    } finally {
      await namespace.close()
    }
  })
})

describe.each([
  ['linuxUevents', realUevents, change],
  ['FakeUevents', async () => new FakeUevents(), undefined],
])('%s', (_name, build: () => Promise<Uevents>, send) => {
  it('delivers each uevent to each listener until it is closed', async () => {
    const uevents = await build()
    const change = send ?? (() => uevents instanceof FakeUevents && uevents.send(CHANGE))
    const [first, second] = [received(uevents), received(uevents)]
    change()
    const lo = { action: 'change', devicePath: '/devices/virtual/net/lo', interfaceName: 'lo' }
    await expect(first.event).resolves.toMatchObject(lo)
    await second.event
    first.close()
    const third = received(uevents)
    second.close()
    change()
    await third.event
    third.close()
  })
})

describe('linuxUevents', () => {
  it('reports that events were lost, and continues', async () => {
    const uevents = await realUevents(4096)
    const lost = Promise.withResolvers<string | undefined>()
    const listening = uevents.listen({ event: () => {}, error: ({ errno }) => lost.resolve(errno) })
    for (let n = 0; n < 100; n += 1) change()
    await expect(lost.promise).resolves.toBe('ENOBUFS')
    const after = received(uevents)
    change()
    await after.event
    after.close()
    listening.close()
  })
})

const CHANGE = [
  'change@/devices/virtual/net/lo',
  ...['ACTION=change', 'DEVPATH=/devices/virtual/net/lo', 'SUBSYSTEM=net', 'INTERFACE=lo'],
].join('\0')

async function realUevents(receiveBufferBytes?: number): Promise<Uevents> {
  const native = await realNative()
  return linuxUevents({
    native,
    streams: linuxStreams(native),
    clock: linuxClock(native),
    log: silentLogger(),
    ...(receiveBufferBytes === undefined ? {} : { receiveBufferBytes }),
  })
}

/** Triggers an event about the loopback interface without changing anything. */
function change(): void {
  writeFileSync('/sys/devices/virtual/net/lo/uevent', 'change')
}

function received(uevents: Uevents): { readonly event: Promise<Uevent>; close(): void } {
  const { promise, resolve, reject } = Promise.withResolvers<Uevent>()
  const { close } = uevents.listen({ event: resolve, error: reject })
  return { event: promise, close }
}
