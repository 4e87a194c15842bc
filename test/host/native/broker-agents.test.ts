import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { TestBroker } from '../../support/broker/broker.ts'
import { frameOf } from '../../support/broker/client.ts'
import { converse, roundTrip } from '../../support/broker/conversation.ts'
import type { PlayedAgent, PlayedConnection } from '../../support/broker/played-agent.ts'
import {
  Control,
  Envelope,
  encodeEnvelope,
  encodeHello,
  HELLO,
  KEEP,
  parseStates,
  RequestFlag,
  State,
} from '../../support/broker/records.ts'
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
/** Larger than the sockets on the way to a client hold. */
const LARGE = frameOf(1, Buffer.alloc(3 << 20, 'x'))

/** Starts the next agent and waits for the broker's messages. */
async function succeed() {
  const agent = broker.startAgent()
  return { agent, ...(await agent.start()) }
}

function only<T>(items: readonly T[]): T {
  const [item] = items
  if (item === undefined || items.length !== 1) throw new Error(`${items.length} items, want one`)
  return item
}

async function nextStates(agent: PlayedAgent) {
  return parseStates(await agent.messages.next(({ kind }) => kind === Control.requestState))
}

/** Answers the repeated request, and expects the answer at the client. */
async function answerAgain(connection: PlayedConnection, number: bigint) {
  const request = await connection.request()
  expect(request).toMatchObject({ number, flags: RequestFlag.sentBefore, frame: ask })
  connection.answer(number, reply)
}

describe('a request whose agent dies', () => {
  it('before it was sent goes to the next agent as a new one', async () => {
    const first = broker.startAgent()
    await first.start()
    first.die()
    const client = await broker.connect()
    await client.send(ask)
    const connection = await broker.startAgent().connections.next()
    const request = await connection.request()
    expect(request).toMatchObject({ flags: 0, frame: ask })
    connection.answer(request.number, reply)
    expect(await client.frames.next()).toEqual(reply)
  })

  it('before the agent has read it goes to the next agent', async () => {
    const agent = broker.startAgent()
    const client = await broker.connect()
    await client.send(ask)
    await agent.connections.next()
    agent.die()
    const { states, connections } = await succeed()
    const { number } = await only(connections).request()
    expect(states).toEqual(new Map([[number, State.open]]))
    only(connections).answer(number, reply)
    expect(await client.frames.next()).toEqual(reply)
  })

  it('before it was answered goes to the next agent, with its age', async () => {
    const before = process.hrtime.bigint()
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    await client.send(ask)
    const { ageNs: newAge } = await connection.request()
    agent.die()
    const { states, connections } = await succeed()
    expect([...states]).toEqual([
      [number, State.open],
      [number + 1n, State.open],
    ])
    const [first, second] = [await only(connections).request(), await only(connections).request()]
    expect([first.number, second.number]).toEqual([number, number + 1n])
    expect(second.ageNs).toBeGreaterThan(newAge)
    expect(first.ageNs).toBeLessThan(process.hrtime.bigint() - before)
  })

  it.each([0, 1, 31, 32, 41, 42, 100, LARGE.length])(
    'after %i bytes of the answer were written goes to the next agent',
    async (bytes) => {
      const agent = broker.startAgent()
      const { client, connection, number } = await converse(broker, agent)
      const answer = encodeEnvelope(Envelope.answer, number, LARGE, KEEP)
      await connection.send(answer.subarray(0, bytes))
      agent.die()
      const { states, connections } = await succeed()
      expect(states).toEqual(new Map([[number, State.open]]))
      await answerAgain(only(connections), number)
      expect(await client.frames.next()).toEqual(reply)
    },
  )

  it('after its answer was written whole is not sent again, although the client reads slowly', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    client.socket.pause()
    await connection.send(encodeEnvelope(Envelope.answer, number, LARGE, KEEP))
    agent.die()
    const { agent: successor, states, connections } = await succeed()
    expect(states).toEqual(new Map([[number, State.answered]]))
    client.socket.resume()
    expect((await client.frames.next()).equals(LARGE)).toBe(true)
    const written = await only(connections).next(Envelope.written)
    expect(written.number).toBe(number)
    await only(connections).send(encodeEnvelope(Envelope.confirm, number))
    await roundTrip(broker, successor)
    successor.die()
    expect((await succeed()).states).toEqual(new Map())
  })

  it('and whose client hangs up is forgotten', async () => {
    const agent = broker.startAgent()
    const { client } = await converse(broker, agent)
    agent.die()
    client.socket.destroy()
    await client.closed
    const { states, connections } = await succeed()
    expect([...states.values()].every((state) => state === State.dropped)).toBe(true)
    expect(connections).toEqual([])
  })

  it('is done when the agent has ended it without an answer', async () => {
    const agent = broker.startAgent()
    const { connection, number } = await converse(broker, agent)
    await connection.send(encodeEnvelope(Envelope.nothing, number))
    agent.die()
    expect((await succeed()).states).toEqual(new Map())
  })

  it('is sent again before newer ones, in the order of arrival over all connections', async () => {
    const agent = broker.startAgent()
    const one = await converse(broker, agent)
    const two = await converse(broker, agent)
    await one.client.send(frameOf(3, 'third'))
    await one.connection.request()
    agent.die()
    await two.client.send(frameOf(3, 'fourth'))
    await one.client.send(frameOf(5, 'fifth'))
    const { states, connections } = await succeed()
    expect([...states.keys()]).toEqual([...states.keys()].toSorted((a, b) => Number(a - b)))
    const requests = await Promise.all(
      connections.map(async (connection) => [await connection.request(), await connection.request()]),
    )
    for (const [first, second] of requests) expect(first?.number).toBeLessThan(second?.number ?? 0n)
  })

  it('keeps the position that an agent has reached in the file of a long request', async () => {
    const agent = broker.startAgent()
    const { number } = await converse(broker, agent, LARGE)
    broker.native.setPosition(await agent.fileOf(number), 1000)
    agent.die()
    const successor = broker.startAgent()
    await successor.start()
    expect(broker.native.positionOf(await successor.fileOf(number))).toBe(1000)
  })

  it('survives many agents', async () => {
    const { client, number } = await converse(broker, broker.startAgent())
    for (let deaths = 0; deaths < 20; deaths += 1) {
      const agent = broker.startAgent()
      const connection = await agent.connections.next()
      expect((await connection.request()).number).toBe(number)
      agent.die()
    }
    const connection = await broker.startAgent().connections.next()
    await answerAgain(connection, number)
    expect(await client.frames.next()).toEqual(reply)
  })
})

describe('an answer that is kept', () => {
  it('is reported as written to every agent until one confirms it', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    connection.answerKept(number, reply)
    await client.frames.next()
    expect((await connection.next(Envelope.written)).number).toBe(number)
    agent.die()
    const second = await succeed()
    expect(second.states).toEqual(new Map([[number, State.written]]))
    second.agent.die()
    const third = await succeed()
    expect(third.states).toEqual(new Map([[number, State.written]]))
    third.agent.send({ kind: Control.confirm, a: number })
    await client.send(ask)
    await only(third.connections).request()
    third.agent.die()
    expect([...(await succeed()).states.values()]).toEqual([State.open])
  })

  it('is reported as dropped when the client hangs up before it was written', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    client.socket.pause()
    await connection.send(encodeEnvelope(Envelope.answer, number, LARGE, KEEP))
    await roundTrip(broker, agent)
    client.socket.destroy()
    expect((await connection.next(Envelope.dropped)).number).toBe(number)
    // The kernel resets a unix socket that is closed with unread bytes, as a device that is gone resets a vsock.
    await connection.next(Envelope.lost)
    await expect(connection.request()).rejects.toThrow('they have ended')
    agent.die()
    expect((await succeed()).states).toEqual(new Map([[number, State.dropped]]))
  })

  it('can be confirmed after its client has hung up, over either socket', async () => {
    const agent = broker.startAgent()
    const one = await converse(broker, agent)
    const two = await converse(broker, agent)
    for (const { client, connection, number } of [one, two]) {
      connection.answerKept(number, reply)
      await client.frames.next()
      await connection.next(Envelope.written)
    }
    one.connection.open().pause()
    one.client.socket.destroy()
    two.client.socket.destroy()
    await one.connection.send(encodeEnvelope(Envelope.confirm, one.number))
    await expect(two.connection.request()).rejects.toThrow('they have ended')
    agent.send({ kind: Control.confirm, a: two.number })
    await roundTrip(broker, agent)
    agent.die()
    expect((await succeed()).states).toEqual(new Map())
  })

  it('is reported to the next agent when it was dropped while no agent ran', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    client.socket.pause()
    await connection.send(encodeEnvelope(Envelope.answer, number, LARGE, KEEP))
    await roundTrip(broker, agent)
    agent.die()
    client.socket.destroy()
    await client.closed
    const { agent: successor, states } = await succeed()
    // The client may hang up before or after the list is sent.
    const told = states.get(number) === State.dropped ? State.dropped : only(await nextStates(successor))[1]
    expect(told).toBe(State.dropped)
  })
})

describe('a hang-up', () => {
  it('is reported to the agent as the end of the connection', async () => {
    const { client, connection } = await converse(broker, broker.startAgent())
    client.socket.destroy()
    await expect(connection.request()).rejects.toThrow('they have ended')
  })

  it('of a client whose requests are being sent to the agent cuts none in two', async () => {
    const agent = broker.startAgent()
    const { client, connection } = await converse(broker, agent)
    connection.open().pause()
    const requests = [LARGE, LARGE, LARGE]
    await client.send(...requests)
    client.socket.destroy()
    await roundTrip(broker, agent)
    connection.open().resume()
    const envelopes = await connection.envelopes.rest()
    expect(envelopes.length).toBeGreaterThan(0)
    expect(envelopes.every(({ fileBytes }) => fileBytes === LARGE.length)).toBe(true)
  })

  it('of a client whose request was listed as open, but not sent again, is reported', async () => {
    const agent = broker.startAgent()
    const long = frameOf(1, Buffer.alloc(60_000))
    const one = await converse(broker, agent, long)
    await one.client.send(...Array<Buffer>(9).fill(long), ask)
    for (let more = 0; more < 10; more += 1) await one.connection.request()
    agent.die()
    const { agent: successor, states, connections } = await succeed()
    expect(states.size).toBe(11)
    // The agent reads nothing, so the last request waits behind the others.
    expect(connections).toHaveLength(1)
    one.client.socket.destroy()
    expect((await nextStates(successor)).at(-1)).toEqual([one.number + 10n, State.dropped])
  })
})

describe('the end of a data socket alone', () => {
  it('does not close the client: an agent that dies closes it, too', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    connection.close()
    await roundTrip(broker, agent)
    const before = broker.cpuMs()
    await roundTrip(broker, agent)
    agent.die()
    const { agent: successor, connections } = await succeed()
    const [first] = connections
    expect(first?.id).toBe(connection.id)
    if (first !== undefined) await answerAgain(first, number)
    expect(await client.frames.next()).toEqual(reply)
    await roundTrip(broker, successor)
    expect(broker.cpuMs() - before).toBeLessThan(1000)
  })
})

describe('an agent that hangs', () => {
  it('is reported when it does not answer a ping beside a request, with its open requests', async () => {
    const agent = broker.startAgent({ hangMs: 100 })
    agent.answersPings = false
    const { client, number } = await converse(broker, agent, frameOf(77, 'secret'))
    const service = 'grpc.AgentService'
    const named = Buffer.from(
      `\n${String.fromCharCode(service.length)}${service}\x12\x0bWaitProcess\x1a\x06secret`,
    )
    await client.send(frameOf(79, named), frameOf(81, Buffer.concat([named, Buffer.alloc(100_000)])))
    expect(await broker.hungPid()).toBe(agent.pid)
    expect(agent.pings).toBe(1)
    expect(broker.log).toContain('has not answered for 100 ms')
    expect(broker.log).toContain(`open request ${number}: an unknown method, connection 1, stream 77, for `)
    expect(broker.log).toContain(
      `open request ${number + 1n}: grpc.AgentService/WaitProcess, connection 1, stream 79, for `,
    )
    expect(broker.log).toContain(': grpc.AgentService/WaitProcess, connection 1, stream 81, for ')
    expect(broker.log).not.toContain('secret')
  })

  it('is reported when it has said hello, and takes nothing', async () => {
    const first = broker.startAgent()
    const clients = await Promise.all(Array.from({ length: 400 }, () => broker.connect()))
    await Promise.all(clients.map((client) => client.send(ask)))
    for (const _ of clients) await first.connections.next()
    first.die()
    // The connections fill its control socket, so it never gets READY.
    const control = broker.announceAgent()
    broker.native.sendMessage(control, encodeHello({ ...HELLO, hangMs: 100 }), broker.listener)
    expect(await broker.hungPid()).toBe(first.pid + 1)
    expect(broker.log).toMatch(/^vminit: broker: agent \d+ has not answered for 100 ms\n/)
    broker.native.close(control)
  })

  it('is not reported while it answers pings, and gets no ping without a request', async () => {
    const agent = broker.startAgent({ hangMs: 30_000 })
    await agent.start()
    expect(agent.pings).toBe(0)
    await roundTrip(broker, agent)
    await expect.poll(() => agent.pings).toBe(1)
    await roundTrip(broker, agent)
    // The second ping follows a second after the first.
    await expect.poll(() => agent.pings).toBe(2)
    expect(broker.log).toBe('')
  })

  it('is not reported once it has said hello, without a request', async () => {
    const agent = broker.startAgent({ hangMs: 100, firstBytesMs: 1000 })
    await agent.start()
    // The broker closes this client after the hang limit.
    const client = await broker.connect()
    await client.send(Buffer.from('PRI'))
    await client.closed
    expect(broker.log).toBe('')
  })

  it('is never pinged without a hang limit', async () => {
    const agent = broker.startAgent({ hangMs: 0 })
    await roundTrip(broker, agent)
    await roundTrip(broker, agent)
    expect(agent.pings).toBe(0)
  })
})
