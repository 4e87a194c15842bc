import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { createServer } from 'node:net'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { handleOf } from '../../../src/os/sockets/socket-handles.ts'
import { encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { allRecordings } from '../../recordings/recording.ts'
import { TestBroker, vminitMessage } from '../../support/broker/broker.ts'
import { frameOf } from '../../support/broker/client.ts'
import { converse, roundTrip } from '../../support/broker/conversation.ts'
import { Control, Envelope, encodeEnvelope, HELLO, Vminit } from '../../support/broker/records.ts'
import { buildSanitizedVminit } from '../../support/vminit/compiled.ts'

let vminit: string
let broker: TestBroker

beforeAll(async () => {
  vminit = await buildSanitizedVminit()
})
beforeEach(async () => {
  broker = await TestBroker.start(vminit)
})
afterEach(async () => {
  const status = await broker.stop()
  expect(broker.log).not.toMatch(/runtime error|Sanitizer/)
  expect(status).toBe(0)
})

const ask = frameOf(1, 'question')
const reply = frameOf(1, 'answer')
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')

async function inPieces(bytes: Buffer, size: number, send: (piece: Buffer) => Promise<void>): Promise<void> {
  for (let at = 0; at < bytes.length; at += size) await send(bytes.subarray(at, at + size))
}

describe('a client', () => {
  it('gets the answer to its request', async () => {
    const { client, connection, number } = await converse(broker, broker.startAgent())
    connection.answer(number, reply)
    expect(await client.frames.next()).toEqual(reply)
    expect(connection).toMatchObject({
      isGrpc: false,
      peer: { kind: 0, address: '', firstBytes: Buffer.alloc(0) },
    })
  })

  it('gets answers in the order in which the agent gives them', async () => {
    const { client, connection, number } = await converse(broker, broker.startAgent())
    await client.send(frameOf(3, 'second'), frameOf(5, ''))
    const [second, third] = [await connection.request(), await connection.request()]
    expect([second.number, third.number]).toEqual([number + 1n, number + 2n])
    connection.answer(third.number, frameOf(5, 'c'))
    connection.answer(number, frameOf(1, 'a'))
    connection.answer(second.number, frameOf(3, 'b'))
    const answers = [await client.frames.next(), await client.frames.next(), await client.frames.next()]
    expect(answers).toEqual([frameOf(5, 'c'), frameOf(1, 'a'), frameOf(3, 'b')])
  })

  it('sends and receives frames of every size about a block, and of 4 MiB', async () => {
    const { client, connection } = await converse(broker, broker.startAgent())
    for (const size of [0, 1, 3900, 3950, 3960, 3970, 4080, 4090, 8040, 8060, 65_536, 4 << 20]) {
      const payload = Buffer.from(Array.from({ length: size }, (_, index) => index % 251))
      const sent = client.send(frameOf(7, payload))
      const { number, frame } = await connection.request()
      expect(frame.equals(frameOf(7, payload))).toBe(true)
      connection.answer(number, frame)
      expect((await client.frames.next()).equals(frame)).toBe(true)
      await sent
    }
  })

  it.each([
    ['one write', 1 << 20],
    ['writes of 1,000 bytes', 1000],
  ])('sends and receives 300 frames of all sizes by %s', async (_, size) => {
    const { client, connection } = await converse(broker, broker.startAgent())
    const sizes = Array.from({ length: 300 }, (_, index) => (index < 100 ? index : 3850 + (index % 120)))
    const frames = sizes.map((length, index) => frameOf(2 * index + 3, Buffer.alloc(length, index)))
    // Both read late, so that the sockets fill.
    connection.open().pause()
    client.socket.pause()
    await inPieces(Buffer.concat(frames), size, (piece) => client.send(piece))
    connection.open().resume()
    const answers: Buffer[] = []
    for (const frame of frames) {
      const request = await connection.request()
      expect(request.frame.equals(frame)).toBe(true)
      answers.push(encodeEnvelope(Envelope.answer, request.number, frame))
    }
    const answered = inPieces(Buffer.concat(answers), size, (piece) => connection.send(piece))
    client.socket.resume()
    for (const frame of frames) expect((await client.frames.next()).equals(frame)).toBe(true)
    await answered
  })

  it('may send its frames byte by byte', async () => {
    const agent = broker.startAgent()
    const client = await broker.connect()
    for (const byte of Buffer.concat([ask, ask])) await client.send(Buffer.of(byte))
    const connection = await agent.connections.next()
    expect([(await connection.request()).frame, (await connection.request()).frame]).toEqual([ask, ask])
  })

  it('may send frames of any type, which need not be answered', async () => {
    const { client, connection, number } = await converse(broker, broker.startAgent())
    await client.send(frameOf(1, '', 3), frameOf(1, 'x', 200))
    for (const type of [3, 200]) {
      const other = await connection.request()
      expect(other.frame[8]).toBe(type)
      await connection.send(encodeEnvelope(Envelope.nothing, other.number))
    }
    connection.answer(number, reply)
    expect(await client.frames.next()).toEqual(reply)
  })

  it('that was recorded is passed on to the byte', async () => {
    const agent = broker.startAgent()
    for (const { lines } of allRecordings()) {
      const frames = lines.flatMap((line) =>
        line.kind === 'call' && line.requestBytes !== undefined
          ? [encodeRequestFrame(line.stream, { ...line, payload: line.requestBytes })]
          : [],
      )
      const client = await broker.connect()
      const sent = client.send(...frames)
      const connection = await agent.connections.next()
      for (const frame of frames) {
        const request = await connection.request()
        expect(request.frame.equals(frame)).toBe(true)
        connection.answer(request.number, frameOf(1, 'done'))
      }
      await sent
      for (const _ of frames) await client.frames.next()
      client.socket.destroy()
    }
  })

  it('that sends nothing stays open, and is not announced to the agent', async () => {
    const agent = broker.startAgent()
    const silent = await broker.connect()
    await roundTrip(broker, agent)
    await silent.send(ask)
    expect((await agent.connections.next()).id).toBe(1n)
  })

  it.each([
    ['text', 'GET / HTTP/1.1\r\n'],
    ['another preface', 'PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n'],
    ['the begin of another preface', 'PRI * HTTP/1.1\r\n'],
    ['a hello of TLS', '\x16\x03\x01\x00\xf8\x01'],
    ['a frame of unknown type', frameOf(1, 'x', 9)],
    ['a frame of 16 MiB', Buffer.from('01000000000000010100', 'hex')],
  ])('that begins with %s is closed', async (_, bytes) => {
    broker.startAgent()
    const client = await broker.connect()
    await client.send(Buffer.from(bytes))
    await client.closed
    expect(client.socket.destroyed).toBe(true)
  })

  it.each([
    ['first bytes', Buffer.from([0, 0])],
    ['preface', Buffer.from('PRI')],
  ])('that stops within its %s is closed after a time', async (_, bytes) => {
    const agent = broker.startAgent({ firstBytesMs: 50 })
    await agent.start()
    const client = await broker.connect()
    await client.send(bytes)
    await client.closed
    await roundTrip(broker, agent)
  })

  it('that stops within a later header is closed after a time', async () => {
    const agent = broker.startAgent({ firstBytesMs: 50 })
    const { client, connection } = await converse(broker, agent)
    await client.send(ask.subarray(0, 9))
    await client.closed
    await expect(connection.request()).rejects.toThrow('they have ended')
  })

  it('leaves no descriptor when it hangs up, whatever it has sent', async () => {
    const agent = broker.startAgent()
    void agent.serve(reply)
    const other = await broker.connect()
    const handled = async () => {
      await other.send(ask)
      await other.frames.next()
    }
    await handled()
    const openFiles = () => readdirSync(`/proc/${broker.pid}/fd`).length
    const before = openFiles()
    const sent = [
      ask,
      Buffer.concat([ask, frameOf(3, 'x')]),
      ask.subarray(0, 12),
      ask.subarray(0, 5),
      preface,
    ]
    for (let count = 0; count < 200; count++) {
      const client = await broker.connect()
      client.socket.write(sent[count % sent.length] ?? ask)
      // Some clients hang up before, and some after the broker has read.
      if (count % 3 > 0) await handled()
      client.socket.destroy()
    }
    await expect.poll(openFiles).toBe(before)
  })

  it('with an HTTP/2 preface is handed over, with its first bytes', async () => {
    const agent = broker.startAgent()
    const client = await broker.connect()
    const received: Buffer[] = []
    client.socket.removeAllListeners('data').on('data', (chunk) => received.push(chunk))
    await client.send(preface.subarray(0, 5))
    await client.send(preface.subarray(5), Buffer.from('settings'))
    const connection = await agent.connections.next()
    expect(connection).toMatchObject({ isGrpc: true, peer: { firstBytes: preface } })
    const socket = connection.open()
    const [chunk] = await Promise.all([new Promise((resolve) => socket.once('data', resolve))])
    expect(chunk).toEqual(Buffer.from('settings'))
    socket.end('answer')
    await client.closed
    expect(Buffer.concat(received).toString()).toBe('answer')
  })

  it('is closed when the agent says so, after all answers', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    const large = frameOf(1, Buffer.alloc(3 << 20, 'x'))
    client.socket.pause()
    await connection.send(encodeEnvelope(Envelope.answer, number, large))
    agent.send({ kind: Control.close, a: connection.id })
    client.socket.resume()
    expect((await client.frames.rest()).map((frame) => frame.equals(large))).toEqual([true])
    await expect(connection.request()).rejects.toThrow('they have ended')
  })

  it('may connect over TCP, and keeps its connection when the next agent listens elsewhere', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const address = server.address()
    const port = address !== null && typeof address === 'object' ? address.port : 0
    const agent = broker.startAgent({}, handleOf(server)?.fd)
    // Only the broker still has the socket.
    server.close()
    const client = await broker.connect(port)
    await client.send(ask)
    const connection = await agent.connections.next()
    const { peer } = connection
    expect(peer).toMatchObject({ kind: 2, address: '127.0.0.1', port: client.socket.localPort })
    agent.die()
    const successor = broker.startAgent()
    const again = await successor.connections.next()
    expect(again.peer).toEqual(peer)
    again.answer((await again.request()).number, reply)
    expect(await client.frames.next()).toEqual(reply)
    await roundTrip(broker, successor)
    await expect(broker.connect(port)).rejects.toThrow('ECONNREFUSED')
  })

  it('is not accepted after STOP, but by the next agent', async () => {
    const agent = broker.startAgent()
    const early = await converse(broker, agent)
    agent.send({ kind: Control.stop })
    early.connection.answer(early.number, reply)
    await early.client.frames.next()
    const late = await broker.connect()
    await late.send(ask)
    await early.client.send(ask)
    await early.connection.request()
    expect(agent.connections.takeAll()).toEqual([])
    agent.die()
    const successor = broker.startAgent()
    const connections = [await successor.connections.next(), await successor.connections.next()]
    expect(connections.map(({ id }) => id)).toEqual([1n, 2n])
  })
})

describe('a frame that is too large', () => {
  it('is skipped, and the agent gets its header', async () => {
    const { client, connection, number } = await converse(
      broker,
      broker.startAgent({ maxPayloadBytes: 1000 }),
    )
    const large = frameOf(3, Buffer.alloc(200_000))
    await client.send(large, frameOf(5, Buffer.alloc(1000)), frameOf(7, Buffer.alloc(1001)))
    const oversized = await connection.next(Envelope.oversized)
    expect(oversized).toMatchObject({ number: number + 1n, flags: 0, frame: large.subarray(0, 10) })
    expect((await connection.request()).frame).toHaveLength(1010)
    expect((await connection.next(Envelope.oversized)).frame.readUInt32BE(0)).toBe(1001)
    connection.answer(oversized.number, frameOf(3, 'too large'))
    expect(await client.frames.next()).toEqual(frameOf(3, 'too large'))
  })
})

describe('an agent that breaks the protocol', () => {
  it.each([
    ['says hello in another version', { version: 1 }],
    ['wants too many connections', { maxConnections: 100_000 }],
    ['has a budget smaller than its frames', { budgetBytes: 1 << 20 }],
    ['waits for more than a week', { hangMs: 604_800_001 }],
  ])('and %s is cut off', async (_, hello) => {
    const agent = broker.startAgent(hello)
    expect(await broker.hungPid()).toBe(agent.pid)
    await agent.cutOff()
    await roundTrip(broker, broker.startAgent())
  })

  it('may wait for a day for an answer to a ping', async () => {
    await roundTrip(broker, broker.startAgent({ hangMs: 86_400_000 }))
  })

  it('is cut off when it says hello without a listening socket', async () => {
    const agent = broker.startSilentAgent()
    agent.sayHello(HELLO)
    expect(await broker.hungPid()).toBe(agent.pid)
  })

  it.each([
    ['a control message of unknown kind', 77, Buffer.alloc(0)],
    ['a control message of wrong length', Control.pong, Buffer.alloc(1)],
    ['a long control message', Control.pong, Buffer.alloc(1000)],
    ['a second hello', Control.hello, Buffer.alloc(20)],
  ])('is cut off when it sends %s', async (_, kind, payload) => {
    const agent = broker.startAgent()
    const { client, number } = await converse(broker, agent)
    agent.send({ kind, payload })
    expect(await broker.hungPid()).toBe(agent.pid)
    const successor = broker.startAgent()
    const connection = await successor.connections.next()
    expect((await connection.request()).number).toBe(number)
    connection.answer(number, reply)
    expect(await client.frames.next()).toEqual(reply)
  })

  it.each([
    ['an envelope of unknown kind', encodeEnvelope(99, 1n)],
    ['an empty answer', encodeEnvelope(Envelope.answer, 1n)],
    ['a confirmation with a frame', encodeEnvelope(Envelope.confirm, 1n, ask)],
    ['unknown flags', encodeEnvelope(Envelope.nothing, 1n, Buffer.alloc(0), 8)],
  ])('is cut off when it sends %s', async (_, bytes) => {
    const agent = broker.startAgent()
    const { connection } = await converse(broker, agent)
    await connection.send(bytes)
    expect(await broker.hungPid()).toBe(agent.pid)
  })

  it('is cut off when the length of an answer is not that of its frame', async () => {
    const agent = broker.startAgent()
    const { connection, number } = await converse(broker, agent)
    connection.answer(number, Buffer.concat([reply, Buffer.of(0)]))
    expect(await broker.hungPid()).toBe(agent.pid)
  })

  it('continues when it answers a request that is not open', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    connection.answer(number + 1n, frameOf(3, 'nobody asked'))
    connection.answer(number, reply)
    connection.answer(number, reply)
    await connection.send(encodeEnvelope(Envelope.confirm, 12_345n))
    await client.send(ask)
    const again = await connection.request()
    connection.answer(again.number, frameOf(1, 'again'))
    expect([await client.frames.next(), await client.frames.next()]).toEqual([reply, frameOf(1, 'again')])
    expect(broker.log).toMatch(/^vminit: broker: agent \d+ answered request \d+, which is not open\n$/)
  })
})

describe('the broker', () => {
  it('ignores messages of vminit that it does not know', async () => {
    broker.sendAsVminit(Buffer.from('short'))
    broker.sendAsVminit(Buffer.alloc(16, 1))
    broker.sendAsVminit(Buffer.alloc(100, 1))
    await roundTrip(broker, broker.startAgent())
  })

  it('answers the pings of vminit, also when no agent runs', async () => {
    for (const number of [1, 2]) expect(await broker.ping(number)).toEqual(vminitMessage(Vminit.pong, number))
    await roundTrip(broker, broker.startAgent())
    expect(await broker.ping(3)).toEqual(vminitMessage(Vminit.pong, 3))
  })

  it.each(['closed by the agent', 'open'])(
    'waits before the power-off for a client that reads late, whose connection was %s',
    async (state) => {
      const agent = broker.startAgent()
      const { client, connection, number } = await converse(broker, agent)
      client.socket.pause()
      agent.send({ kind: Control.stop })
      connection.answerKept(number, reply)
      await connection.next(Envelope.written)
      if (state !== 'open') {
        agent.send({ kind: Control.close, a: connection.id })
        expect(await connection.envelopes.rest()).toEqual([])
      }
      const startMs = performance.now()
      expect(await broker.leave(50)).toEqual(vminitMessage(Vminit.leave, 50))
      expect(performance.now() - startMs).toBeGreaterThanOrEqual(50)
      const left = broker.leave(60_000)
      client.socket.resume()
      expect(await client.frames.next()).toEqual(reply)
      await client.closed
      expect(await left).toEqual(vminitMessage(Vminit.leave, 60_000))
    },
  )

  it('ignores the signals that stop a service', async () => {
    const agent = broker.startAgent()
    await roundTrip(broker, agent)
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const) process.kill(broker.pid, signal)
    await roundTrip(broker, agent)
  })
})
