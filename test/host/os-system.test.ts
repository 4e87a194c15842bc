import { writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { describe, expect, it } from 'vitest'
import { linuxStreams } from '../../src/os/streams.ts'
import { linuxSystem } from '../../src/os/system.ts'
import { linuxUevents } from '../../src/os/uevents.ts'
import { realNative } from '../os/real-native.ts'

// What changes the machine is done in a way that leaves it as it was.
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

describe('linuxUevents', () => {
  it('hands over what the kernel sends, until it is closed', async () => {
    const native = await realNative()
    const uevents = linuxUevents(native, linuxStreams(native))
    const received = Promise.withResolvers<string>()
    const failed = (error: Error) => received.reject(error)
    const listening = uevents.listen({
      event: (datagram) => received.resolve(datagram.toString()),
      error: failed,
    })
    writeFileSync('/sys/devices/virtual/net/lo/uevent', 'change')
    const fields = (await received.promise).split('\0')
    listening.close()
    expect(fields[0]).toBe('change@/devices/virtual/net/lo')
    expect(fields).toContain('INTERFACE=lo')
  })
})
