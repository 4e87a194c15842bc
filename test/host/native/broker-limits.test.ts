import { readdirSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { buildVminit } from '../../../src/build/native.ts'
import { TestBroker } from '../../support/broker/broker.ts'
import { type BrokerClient, frameOf } from '../../support/broker/client.ts'
import { converse, roundTrip } from '../../support/broker/conversation.ts'
import { Envelope, encodeEnvelope, RequestFlag } from '../../support/broker/records.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { buildSanitizedVminit, buildVminitOnOtherKernel } from '../../support/vminit/compiled.ts'

let sanitized: string
let real: string
let broker: TestBroker

beforeAll(async () => {
  sanitized = await buildSanitizedVminit()
  real = await buildVminit()
})
afterEach(async () => {
  const status = await broker.stop()
  expect(broker.log).not.toMatch(/runtime error|Sanitizer/)
  expect(status).toBe(0)
})

const MIB = 1 << 20
const ask = frameOf(1, 'question')
const reply = frameOf(1, 'answer')

describe('connections', () => {
  it('a thousand are served, also by the next agent', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent()
    const clients: BrokerClient[] = []
    for (let count = 0; count < 1000; count += 1) clients.push(await broker.connect())
    await Promise.all(clients.map((client) => client.send(ask)))
    for (const _ of clients) await (await agent.connections.next()).request()
    agent.die()
    const successor = broker.startAgent()
    const { states, connections } = await successor.start()
    expect([states.size, connections.length]).toEqual([1000, 1000])
    for (const connection of connections) connection.answer((await connection.request()).number, reply)
    for (const client of clients) expect(await client.frames.next()).toEqual(reply)
  })

  it('beyond the maximum close the oldest that has sent no whole frame, then themselves', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent({ maxConnections: 3 })
    const lifeLine = await converse(broker, agent)
    const silent = [await broker.connect(), await broker.connect()]
    const fourth = await broker.connect()
    await silent[0]?.closed
    await fourth.send(ask)
    await agent.connections.next()
    await silent[1]?.send(ask)
    await agent.connections.next()
    const fifth = await broker.connect()
    await fifth.closed
    lifeLine.connection.answer(lifeLine.number, reply)
    expect(await lifeLine.client.frames.next()).toEqual(reply)
  })

  it('that have hung up make place, although the agent has not closed its end', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent({ maxConnections: 2 })
    for (let count = 0; count < 10; count += 1) {
      const { client, connection } = await converse(broker, agent)
      connection.open().allowHalfOpen = true
      client.socket.destroy()
    }
    await roundTrip(broker, agent)
  })
})

describe('on vsock', () => {
  async function connectFrom(cid: number, allowLoopback: boolean) {
    broker = await TestBroker.start(await buildVminitOnOtherKernel(), { PEER_CID: String(cid) })
    const agent = broker.startAgent({ allowLoopback })
    await agent.start()
    return { agent, client: await broker.connect() }
  }

  it.each([
    [0, true],
    [1, false],
    [3, true],
    [1234, true],
    [0xffffffff, true],
  ])(
    'a client of CID %i is closed (loopback allowed: %s), and the agent gets nothing',
    async (cid, allow) => {
      const { agent, client } = await connectFrom(cid, allow)
      void client.send(ask)
      await client.closed
      expect(await client.frames.rest()).toEqual([])
      await expect.poll(() => broker.log).toContain(`broker: refused vsock ${cid}:77: not the host`)
      agent.die()
      expect((await broker.startAgent().start()).connections).toEqual([])
    },
  )

  it.each([
    [2, false],
    [1, true],
  ])('a client of CID %i is served (loopback allowed: %s), and named', async (cid, allow) => {
    const { agent, client } = await connectFrom(cid, allow)
    await client.send(ask)
    const connection = await agent.connections.next()
    expect(connection.peer).toMatchObject({ kind: 1, cid, port: 77 })
    connection.answer((await connection.request()).number, reply)
    expect(await client.frames.next()).toEqual(reply)
  })
})

describe('a socket that the kernel cannot wait for', () => {
  it('ends its client with a line in the log, and no other', async () => {
    const full = join(temporaryFolder(), 'full')
    broker = await TestBroker.start(await buildVminitOnOtherKernel(), { FULL_EPOLL: full })
    const agent = broker.startAgent()
    await agent.start()
    const half = await broker.connect()
    await half.send(ask.subarray(0, 5))
    const before = await converse(broker, agent)
    // The answer shows that the broker waits for all sockets of the earlier connections.
    await roundTrip(broker, agent)
    writeFileSync(full, '')
    // Neither its data socket nor a new client's socket can be watched.
    await half.send(ask.subarray(5))
    await half.closed
    await agent.connections.next()
    await (await broker.connect()).closed
    expect(broker.log.match(/cannot be waited for: No space left on device/g)).toHaveLength(2)
    rmSync(full)
    before.connection.answer(before.number, reply)
    expect(await before.client.frames.next()).toEqual(reply)
    await roundTrip(broker, agent)
  })
})

/** The bytes of long requests, which are in files. */
function storedBytes(): number {
  const folder = `/proc/${broker.pid}/fd`
  const sizes = readdirSync(folder).map((fd) =>
    readlinkSync(`${folder}/${fd}`).includes('memfd:request') ? statSync(`${folder}/${fd}`).size : 0,
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}

describe('stored bytes', () => {
  it('a client that no agent serves is not read beyond its share, and continues with an agent', async () => {
    broker = await TestBroker.start(sanitized)
    const first = broker.startAgent({ budgetBytes: 24 * MIB, maxPayloadBytes: MIB })
    await first.start()
    first.die()
    const client = await broker.connect()
    const requests = Array.from({ length: 40 }, () => frameOf(1, Buffer.alloc(MIB / 4, 'x')))
    const sent = client.send(...requests)
    // The connection's share is 4 MiB. The rest waits in the sockets.
    await expect.poll(() => storedBytes()).toBeGreaterThanOrEqual(4 * MIB)
    expect(storedBytes()).toBeLessThan(4.5 * MIB)
    const agent = broker.startAgent({ budgetBytes: 24 * MIB, maxPayloadBytes: MIB })
    const { states, connections } = await agent.start()
    expect(states.size).toBeLessThanOrEqual(17)
    const connection = connections[0] ?? (await agent.connections.next())
    for (const request of requests) {
      const { number, frame } = await connection.request()
      expect(frame.equals(request)).toBe(true)
      connection.answer(number, reply)
    }
    await sent
    for (const _ of requests) await client.frames.next()
  })

  it('requests that an agent does not answer leave room for small ones, and refuse large ones', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent({ budgetBytes: 8 * MIB, maxPayloadBytes: MIB })
    const large = frameOf(1, Buffer.alloc(MIB, 'x'))
    const greedy = await converse(broker, agent, large)
    const numbers = [greedy.number]
    const refused: bigint[] = []
    // The requests of all connections have 3.5 MiB, without the reserve.
    for (let count = 0; count < 5; count += 1) {
      const sent = greedy.client.send(large)
      const request = await greedy.connection.envelopes.next()
      await sent
      if (request.kind === Envelope.request) numbers.push(request.number)
      else refused.push(request.number)
      if (request.kind === Envelope.oversized)
        expect(request).toMatchObject({ flags: RequestFlag.noRoom, frame: large.subarray(0, 10) })
    }
    expect([numbers.length, refused.length]).toEqual([3, 3])
    await roundTrip(broker, agent)
    for (const number of [...numbers, ...refused]) {
      greedy.connection.answer(number, reply)
      await greedy.client.frames.next()
    }
    await greedy.client.send(large)
    expect((await greedy.connection.request()).frame.equals(large)).toBe(true)
  })

  it('answers that clients do not read leave room for small ones, and arrive once they read', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent({ budgetBytes: 8 * MIB, maxPayloadBytes: MIB })
    const answer = frameOf(1, Buffer.alloc(MIB, 'x'))
    const readers = []
    for (let count = 0; count < 8; count += 1) {
      const reader = await converse(broker, agent)
      reader.client.socket.pause()
      await reader.client.send(ask, ask)
      const numbers = [
        reader.number,
        (await reader.connection.request()).number,
        (await reader.connection.request()).number,
      ]
      for (const number of numbers) reader.connection.answer(number, answer)
      readers.push(reader)
    }
    await roundTrip(broker, agent)
    for (const { client } of readers) client.socket.resume()
    for (const { client } of readers) {
      for (let count = 0; count < 3; count += 1)
        expect((await client.frames.next()).equals(answer)).toBe(true)
    }
  })

  it('a skipped request is told once there is room, although its client sends nothing more', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent({ budgetBytes: 2 * MIB, maxPayloadBytes: MIB / 4 })
    // Each takes 16 blocks, so 16 take all 256 of the requests, with the reserve.
    const large = frameOf(1, Buffer.alloc(65_000))
    const first = await converse(broker, agent, large)
    for (let count = 1; count < 16; count += 1) await converse(broker, agent, large)
    const tooLarge = frameOf(1, Buffer.alloc(MIB / 4 + 1))
    await (await broker.connect()).send(tooLarge)
    // The broker has read all of it by its second PONG.
    for (const number of [1, 2]) await broker.ping(number)
    first.connection.answer(first.number, reply)
    const envelope = await (await agent.connections.next()).next(Envelope.oversized)
    expect(envelope.frame.equals(tooLarge.subarray(0, 10))).toBe(true)
  })

  it('long requests of a client that hung up count until the agent has closed its end', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent({ budgetBytes: 8 * MIB, maxPayloadBytes: MIB })
    const large = frameOf(1, Buffer.alloc(MIB, 'x'))
    const { client, connection } = await converse(broker, agent, large)
    await client.send(large, large)
    for (let count = 0; count < 2; count += 1) await connection.request()
    connection.open().allowHalfOpen = true
    client.socket.destroy()
    await connection.envelopes.rest()
    const other = await broker.connect()
    await other.send(large)
    const second = await agent.connections.next()
    expect(await second.next(Envelope.oversized)).toMatchObject({ flags: RequestFlag.noRoom })
    connection.close()
    await roundTrip(broker, agent)
    await other.send(large)
    expect((await second.request()).frame.equals(large)).toBe(true)
  })

  it('a long request whose client dies after any 4 KiB of it leaves no file', async () => {
    broker = await TestBroker.start(sanitized)
    const agent = broker.startAgent()
    const request = frameOf(1, Buffer.alloc(MIB / 4, 'x'))
    for (let bytes = 4096; bytes <= request.length; bytes += 4096) {
      const client = await broker.connect()
      await client.send(request.subarray(0, bytes))
      client.socket.destroy()
      await client.closed
    }
    await roundTrip(broker, agent)
    await expect.poll(() => storedBytes()).toBe(0)
  })

  it('incomplete requests take what has arrived, not what they announce', async () => {
    broker = await TestBroker.start(real)
    const agent = broker.startAgent()
    await roundTrip(broker, agent)
    const before = broker.residentKib()
    const header = frameOf(1, Buffer.alloc(4 * MIB)).subarray(0, 11)
    for (let count = 0; count < 200; count += 1) await (await broker.connect()).send(header)
    await roundTrip(broker, agent)
    // Each takes a block and a place in the table of connections.
    expect(broker.residentKib() - before).toBeLessThan(200 * 6)
  })

  it('an agent that never confirms takes a bounded amount of memory', async () => {
    broker = await TestBroker.start(sanitized)
    const limits = { budgetBytes: 2 * MIB, maxPayloadBytes: MIB / 4 }
    const agent = broker.startAgent(limits)
    const { client, connection, number } = await converse(broker, agent)
    connection.answerKept(number, reply)
    // The table has 256 places for answers, and 4,096 for unconfirmed requests.
    for (let count = 0; count < 5000; count += 500) {
      await client.send(...Array.from({ length: 500 }, () => ask))
      for (let index = 0; index < 500; index += 1) {
        const envelope = await connection.envelopes.next(({ kind }) => kind === Envelope.request)
        connection.answerKept(envelope.number, reply)
      }
    }
    for (let count = 0; count < 5001; count += 1) await client.frames.next()
    agent.die()
    const { states } = await broker.startAgent(limits).start()
    expect(states.size).toBe(4096 + 256)
  })
})

describe('memory', () => {
  it('is below a MiB at rest, and is given back after a load', async () => {
    broker = await TestBroker.start(real)
    const agent = broker.startAgent()
    await roundTrip(broker, agent)
    const { client, connection, number } = await converse(broker, agent)
    expect(broker.residentKib()).toBeLessThan(1024)
    client.socket.pause()
    await connection.send(encodeEnvelope(Envelope.answer, number, frameOf(1, Buffer.alloc(4 * MIB))))
    await roundTrip(broker, agent)
    expect(broker.residentKib()).toBeGreaterThan(3000)
    client.socket.resume()
    await client.frames.next()
    await expect.poll(() => broker.residentKib()).toBeLessThan(1400)
  })
})
