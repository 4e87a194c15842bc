import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { type Broker, type BrokerConnection, connectBroker } from '../../../src/os/supervisor/broker.ts'
import { BrokerMessageKind } from '../../../src/os/supervisor/broker-messages.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { realNative } from '../../support/os/real-native.ts'
import { ownDescriptors } from '../../support/processes.ts'
import { FakeBroker } from '../../support/rpc/fake-broker.ts'
import { turns } from '../../support/rpc/fake-methods.ts'

const LIMITS = {
  ...{ allowLoopback: false, tcpPeer: '', hangMs: 10_000, connections: 8, headerMs: 10_000 },
  ...{ framePayloadBytes: 100, totalBytes: 1000 },
}

let native: Native
beforeAll(async () => {
  native = await realNative()
})

describe('the broker', () => {
  let peer: FakeBroker
  let clock: FakeClock
  let broker: Broker
  let connections: BrokerConnection[]

  beforeEach(() => {
    peer = new FakeBroker(native)
    clock = new FakeClock()
    broker = connectBroker({
      fd: peer.agentFd,
      native,
      streams: linuxStreams(native),
      clock,
      check: () => {},
    })
    connections = []
  })

  afterEach(() => peer.close())

  /** One end of a socket pair stands for a listening socket. */
  function serve() {
    const [listening, other] = unwrap('open', 'a socket pair', native.socketPair())
    const served = broker.serve(listening, LIMITS, (connection) => connections.push(connection))
    native.close(other)
    return served.finally(() => native.close(listening))
  }

  async function ready() {
    const served = serve()
    const hello = await peer.next()
    peer.send(BrokerMessageKind.READY, {})
    await served
    return hello
  }

  async function connected(): Promise<BrokerConnection> {
    while (connections.length === 0) await turns(1)
    const [connection] = connections
    if (connection === undefined) throw new Error('none')
    return connection
  }

  it('gets the listening socket first', async () => {
    const hello = await ready()
    expect(hello).toMatchObject({
      kind: BrokerMessageKind.HELLO,
      a: 3n,
      b: 10_000n,
      fds: [expect.any(Number)],
    })
  })

  it('reports the fate of earlier requests: what is known before it is ready, the rest later', async () => {
    const served = serve()
    peer.send(BrokerMessageKind.REQUEST_STATE, { flags: 1, a: 7n })
    peer.send(BrokerMessageKind.REQUEST_STATE, { a: 8n })
    peer.send(BrokerMessageKind.REQUEST_STATE, { flags: 3, a: 9n })
    peer.send(BrokerMessageKind.READY, {})
    await served
    const { earlierRequests } = broker
    const told: unknown[] = []
    broker.onSettled((...settled) => told.push(settled))
    expect([...earlierRequests]).toEqual([
      [7n, 'written'],
      [8n, 'open'],
      [9n, 'answered'],
    ])
    broker.settled(9n, true)
    peer.send(BrokerMessageKind.REQUEST_STATE, { flags: 2, a: 8n })
    await expect
      .poll(() => told)
      .toEqual([
        [9n, 'written'],
        [8n, 'dropped'],
      ])
    expect(earlierRequests.get(9n)).toBe('written')
  })

  it('reports once that a request is dropped when this agent refuses it', async () => {
    const served = serve()
    peer.send(BrokerMessageKind.REQUEST_STATE, { a: 8n })
    peer.send(BrokerMessageKind.READY, {})
    await served
    const told: unknown[] = []
    broker.onSettled((...settled) => told.push(settled))
    for (const number of [0n, 8n, 8n, 10n]) broker.refused(number)
    expect(told).toEqual([[8n, 'dropped']])
  })

  it('gets a confirmation of answers whose data socket the agent has ended itself', async () => {
    await ready()
    peer.send(BrokerMessageKind.REQUEST_STATE, { flags: 1, a: 7n })
    expect(await peer.next()).toMatchObject({ kind: BrokerMessageKind.CONFIRM, a: 7n })
  })

  it('must be ready after 10 s', async () => {
    const served = expect(serve()).rejects.toThrow('broker: not ready after 10000 ms')
    await peer.next()
    clock.advance(10_000)
    await served
  })

  it('passes connections with their descriptors, and gets requests to close them', async () => {
    await ready()
    const data = peer.connect(3n)
    const connection = await connected()
    expect(connection).toMatchObject({ framing: 'ttrpc', peer: { kind: 'unix' } })
    native.write(data, Buffer.from('hello'))
    expect(native.read(connection.fd, 10)).toEqual(Buffer.from('hello'))
    connection.close()
    expect(await peer.next()).toMatchObject({ kind: BrokerMessageKind.CLOSE, a: 3n })
    native.close(data)
    native.close(connection.fd)
  })

  describe('the file of a request', () => {
    const openFiles = () => ownDescriptors().length

    function sendFile(a: bigint, b: bigint): void {
      const file = native.memoryFile('frame')
      native.writeAt(file, 0, Buffer.from(`frame ${a}`))
      peer.send(BrokerMessageKind.FILE, { a, b }, undefined, file)
    }

    it('is taken although its message was not read yet, by the one that takes it first', async () => {
      await ready()
      const data = peer.connect(3n)
      const { files, fd } = await connected()
      sendFile(7n, 3n)
      sendFile(8n, 3n)
      const [first = -1, second = -1, again] = [files.take(8n), files.take(7n), files.take(7n)]
      expect([files.read(first, 0, 7), files.read(second, 6, 9)].map(String)).toEqual(['frame 8', '7'])
      expect(again).toBeUndefined()
      for (const each of [first, second]) files.close(each)
      for (const each of [data, fd]) native.close(each)
    })

    it('is closed when its connection ends before it is taken, or has ended before it comes', async () => {
      await ready()
      const data = peer.connect(3n)
      const { files, fd } = await connected()
      const before = openFiles()
      sendFile(7n, 3n)
      sendFile(8n, 3n)
      files.close(files.take(8n) ?? -1)
      expect(openFiles() - before).toBe(1)
      files.forget()
      expect(openFiles() - before).toBe(0)
      sendFile(9n, 3n)
      expect([files.take(9n), openFiles() - before]).toEqual([undefined, 0])
      for (const each of [data, fd]) native.close(each)
    })
  })

  it('has its pings answered', async () => {
    await ready()
    peer.send(BrokerMessageKind.PING, { a: 5n })
    expect(await peer.next()).toMatchObject({ kind: BrokerMessageKind.PONG, a: 5n })
  })

  it('gets every message when it reads late', async () => {
    await ready()
    for (let count = 0; count < 1000; count += 1) broker.stopAccepting()
    broker.confirm(1n)
    for (let count = 0; count < 1000; count += 1) {
      expect(await peer.next()).toMatchObject({ kind: BrokerMessageKind.STOP })
    }
    expect(await peer.next()).toMatchObject({ kind: BrokerMessageKind.CONFIRM, a: 1n })
  })

  it.each([
    ['is gone', (it: FakeBroker) => it.close(), 'broker: it is gone'],
    ['sends half a header', (it: FakeBroker) => it.sendBytes(Buffer.alloc(7)), 'broker: message of 7 bytes'],
    [
      'sends a connection without its socket',
      (it: FakeBroker) => it.send(BrokerMessageKind.CONNECTION, {}, Buffer.alloc(20)),
      'broker: message connection with 0 descriptors',
    ],
    [
      'sends a socket with another message',
      (it: FakeBroker) => it.send(BrokerMessageKind.READY, {}, Buffer.alloc(0), native.eventFd()),
      'broker: message ready with 1 descriptors',
    ],
  ])('fails when it %s, and no descriptor is left', async (_, spoil, message) => {
    await ready()
    const before = ownDescriptors().length
    spoil(peer)
    await expect(broker.failed).rejects.toThrow(message)
    peer.close()
    expect(ownDescriptors().length).toBe(before - 1)
  })
})
