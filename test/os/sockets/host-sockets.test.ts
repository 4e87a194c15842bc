import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import {
  type HostAddress,
  type HostListener,
  type HostPeer,
  type HostSockets,
  linuxHostSockets,
} from '../../../src/os/sockets/host-sockets.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { Fd, Streams } from '../../../src/os/streams/streams.ts'
import { FakeHostSockets } from '../../support/fakes/streams/fake-host-sockets.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'
import { FakeDescriptors } from '../../support/fakes/supervisor/fake-descriptors.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

interface Implementation {
  readonly sockets: HostSockets
  readonly streams: Streams
  readonly descriptors: FakeDescriptors
}

async function onLinux(): Promise<Implementation> {
  const native = await realNative()
  const streams = linuxStreams(native)
  const descriptors = new FakeDescriptors(streams)
  const sockets = linuxHostSockets({ native, streams, clock: linuxClock(native), descriptors })
  return { sockets, streams, descriptors }
}

async function fake(): Promise<Implementation> {
  const streams = new FakeStreams()
  const descriptors = new FakeDescriptors(streams)
  return { sockets: new FakeHostSockets(streams, descriptors), streams, descriptors }
}

/** A listener, and the connections that it accepted. */
function accepting(): HostListener & { readonly connections: [Fd, HostPeer][] } {
  const connections: [Fd, HostPeer][] = []
  const connection = (...accepted: [Fd, HostPeer]) => void connections.push(accepted)
  return { connections, connection, error: (error) => expect.unreachable(error.message) }
}

describe.each([
  ['linuxHostSockets', onLinux],
  ['FakeHostSockets', fake],
])('%s', (_name, build) => {
  async function built() {
    const made = await build()
    const { sockets, streams } = made
    const address: HostAddress = { kind: 'unix', path: join(temporaryFolder(), 'port') }
    const connect = (fd: Fd, signal = neverAborted) => sockets.connect(fd, address, signal)
    const exchange = async (from: Fd, to: Fd | undefined, text: string) => {
      streams.tryWrite(from, Buffer.from(text))
      if (to === undefined) throw new Error('no connection')
      await streams.readable(to)
      expect(streams.tryRead(to, 100)?.toString()).toBe(text)
    }
    return { ...made, address, connect, exchange, socket: () => sockets.socket(address, 1000) }
  }

  it('connects to a listener, which reads to the end and outlives it', async () => {
    const { sockets, streams, descriptors, address, connect, exchange, socket } = await built()
    const host = accepting()
    const listening = await sockets.listen('listener', address, host)
    const client = socket()
    await connect(client)
    await expect.poll(() => host.connections).toEqual([[expect.any(Number), { kind: 'unix', path: '' }]])
    const [server = -1] = host.connections[0] ?? []
    listening.close()
    await descriptors.remove('listener')
    await exchange(client, server, 'question')
    await exchange(server, client, 'answer')
    streams.close(client)
    await streams.readable(server)
    expect(streams.tryRead(server, 100)?.length).toBe(0)
    streams.close(server)
  })

  it('connects a socket that the previous agent left unconnected, but no socket twice', async () => {
    const { sockets, streams, descriptors, address, connect, exchange, socket } = await built()
    const host = accepting()
    const listening = await sockets.listen('listener', address, host)
    const [first, other] = [socket(), socket()]
    const inherited = streams.duplicate(first)
    streams.close(first)
    await connect(inherited)
    await connect(streams.duplicate(inherited))
    await connect(other)
    await expect.poll(() => host.connections).toHaveLength(2)
    await exchange(inherited, host.connections[0]?.[0], 'inherited')
    listening.close()
    await descriptors.remove('listener')
    await connect(inherited)
  })

  it('leaves the socket unconnected where nothing listens, and when its signal has fired', async () => {
    const { sockets, descriptors, address, connect, exchange, socket } = await built()
    const client = socket()
    const refusal = (errno: string) => ({
      ...{ code: 'INTERNAL', errno },
      message: expect.stringMatching(`^connect .*/port: ${errno}$`),
    })
    await expect(connect(client)).rejects.toMatchObject(refusal('ENOENT'))
    const listening = await sockets.listen('listener', address, accepting())
    listening.close()
    await descriptors.remove('listener')
    await expect(connect(client)).rejects.toMatchObject(refusal('ECONNREFUSED'))
    const host = accepting()
    const again = await sockets.listen('listener', address, host)
    await expect(connect(client, AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough')
    await connect(client)
    await expect.poll(() => host.connections).toHaveLength(1)
    await exchange(client, host.connections[0]?.[0], 'at last')
    again.close()
  })

  it('keeps the port in the store, where connections wait for the next agent', async () => {
    const { sockets, descriptors, address, connect, exchange, socket } = await built()
    const first = await sockets.listen('listener', address, accepting())
    expect(descriptors.stored).toEqual(['listener'])
    first.close()
    const client = socket()
    await connect(client)
    descriptors.restart()
    const next = accepting()
    const second = await sockets.listen('listener', address, next)
    await expect.poll(() => next.connections).toHaveLength(1)
    await exchange(client, next.connections[0]?.[0], 'waited')
    expect(descriptors.stored).toEqual(['listener'])
    second.close()
  })

  it('refuses the address of a socket in the store', async () => {
    const { sockets, descriptors, address } = await built()
    const listening = await sockets.listen('listener', address, accepting())
    listening.close()
    await expect(sockets.listen('other', address, accepting())).rejects.toMatchObject({
      ...{ code: 'INTERNAL', errno: 'EADDRINUSE' },
      message: expect.stringMatching(/^listen .*\/port: EADDRINUSE$/),
    })
    expect(descriptors.stored).toEqual(['listener'])
  })

  it('does not listen when the store refuses the socket', async () => {
    const { sockets, descriptors, address, connect, socket } = await built()
    descriptors.refusal = 'EIO'
    await expect(sockets.listen('listener', address, accepting())).rejects.toMatchObject({ code: 'INTERNAL' })
    await expect(connect(socket())).rejects.toMatchObject({ errno: 'ECONNREFUSED' })
    descriptors.refusal = undefined
    const listening = await sockets.listen('listener', address, accepting())
    await connect(socket())
    listening.close()
  })
})
