import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { startTransport, type Transport } from '../../../src/agent/transport/transport.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Native } from '../../../src/os/native.ts'
import { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import { linuxSockets } from '../../../src/os/sockets/sockets.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { connectBroker } from '../../../src/os/supervisor/broker.ts'
import { BrokerMessageKind } from '../../../src/os/supervisor/broker-messages.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import { EnvelopeKind } from '../../../src/rpc/ttrpc/envelope.ts'
import { emptyStore } from '../../support/agent/empty-store.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { realNative } from '../../support/os/real-native.ts'
import { brokerData, requestFrame, responseIn } from '../../support/rpc/broker-data.ts'
import { FakeBroker } from '../../support/rpc/fake-broker.ts'
import { echo, heldMethod, tableOf } from '../../support/rpc/fake-methods.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const SETTINGS = Buffer.from('000000040000000000', 'hex')

let native: Native
beforeAll(async () => {
  native = await realNative()
})

describe('startTransport with a broker', () => {
  let broker: FakeBroker
  let path: string
  let transport: Transport
  const held = heldMethod()
  const clock = new FakeClock()

  beforeEach(async () => {
    path = join(temporaryFolder(), 'agent.sock')
    broker = new FakeBroker(native)
    const streams = linuxStreams(native)
    const starting = startTransport({
      sockets: linuxSockets(native, emptyStore),
      address: { kind: 'unix', path },
      broker: connectBroker({ fd: broker.agentFd, native, streams, clock, check: () => {} }),
      hangMs: 10_000,
      allowLoopback: false,
      tcpPeer: '',
      methods: tableOf({ 'test.Echo/Echo': echo, 'test.Echo/Held': held.method }),
      readDescriptors: async () => Buffer.alloc(0),
      checkCall: async () => undefined,
      totals: new Totals(),
      log: silentLogger(),
      boottimeNs: () => clock.boottimeNs(),
      startTimer: (ms, expired) => clock.startTimer(ms, expired),
    })
    const hello = await broker.next()
    expect(hello).toMatchObject({ kind: BrokerMessageKind.HELLO, flags: 0, b: 10_000n })
    broker.send(BrokerMessageKind.READY, {})
    transport = await starting
    const [listening] = hello.fds
    const client = connect(path)
    await once(client, 'connect')
    expect(native.close(native.accept(listening ?? -1))).toBe(0)
    native.close(listening ?? -1)
    client.destroy()
  })

  afterEach(() => broker.close())

  function connectTtrpc() {
    const socket = new SocketHandles(native).socket(broker.connect(1n, undefined, [1, 2, 77, 0]))
    return { socket, data: brokerData(socket) }
  }

  it('hands over its socket, and serves ttRPC on data sockets', async () => {
    const { socket, data } = connectTtrpc()
    data.send(EnvelopeKind.request, 3n, requestFrame(1, 'Held'), { ageNs: 5_000_000 })
    const { call, answer } = await held.next()
    expect(call).toMatchObject({ peer: 'vsock 2:77', framing: 'ttrpc', number: 3n, ageMs: 5 })
    answer({ ok: true, payload: Buffer.from('done') })
    expect(Buffer.from(responseIn(await data.next()).payload).toString()).toBe('done')
    socket.end()
    await once(socket, 'close')
    await transport.stop()
    expect(await broker.next()).toMatchObject({ kind: BrokerMessageKind.STOP })
  })

  it('serves gRPC on the client’s own socket from its first bytes on', async () => {
    const client = new SocketHandles(native).socket(broker.connect(2n, PREFACE))
    client.write(SETTINGS)
    const [answer] = await once(client, 'data')
    expect(answer[3]).toBe(SETTINGS[3])
    client.destroy()
    await transport.stop()
  })

  it('answers open calls at a stop, has the broker close the client, and removes the path', async () => {
    const { socket, data } = connectTtrpc()
    data.send(EnvelopeKind.request, 1n, requestFrame(1, 'Held'))
    const { answer } = await held.next()
    const stopped = transport.stop()
    expect(await broker.next()).toMatchObject({ kind: BrokerMessageKind.STOP })
    answer({ ok: true, payload: Buffer.alloc(0) })
    expect(await data.next()).toMatchObject({ kind: EnvelopeKind.answer, number: 1n })
    expect(await broker.next()).toMatchObject({ kind: BrokerMessageKind.CLOSE, a: 1n })
    socket.end()
    await stopped
    expect(existsSync(path)).toBe(false)
  })
})
