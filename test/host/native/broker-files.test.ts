import { readdirSync, readlinkSync } from 'node:fs'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { TestBroker } from '../../support/broker/broker.ts'
import { frameOf } from '../../support/broker/client.ts'
import { type Conversation, converse, roundTrip } from '../../support/broker/conversation.ts'
import { Envelope, encodeEnvelope, IN_FILE, KEEP, State } from '../../support/broker/records.ts'
import { buildSanitizedVminit } from '../../support/vminit/compiled.ts'

const OFFSET = 2 ** 30

let vminit: string
let broker: TestBroker
let file: Fd

beforeAll(async () => {
  vminit = await buildSanitizedVminit()
})
beforeEach(async () => {
  broker = await TestBroker.start(vminit)
  file = broker.native.memoryFile('output')
})
afterEach(async () => {
  broker.native.close(file)
  const status = await broker.stop()
  expect(broker.log).not.toMatch(/runtime error|Sanitizer/)
  expect(status).toBe(0)
})

const ask = frameOf(1, 'question')
const reply = frameOf(1, 'answer')
const flags = KEEP | IN_FILE

/** Each byte of the frame shows its position. */
function frameWith(size: number): Buffer {
  return frameOf(1, Buffer.from(Array.from({ length: size }, (_, index) => index % 251)))
}

function answerFromFile(
  { connection, number }: Pick<Conversation, 'connection' | 'number'>,
  frame: Buffer,
  fileBytes: number,
  before = Buffer.alloc(0),
): void {
  broker.native.writeAt(file, OFFSET, frame.subarray(frame.length - fileBytes))
  const envelope = encodeEnvelope(Envelope.answer, number, frame, flags, { offset: OFFSET, fileBytes })
  connection.sendWith(Buffer.concat([before, envelope]), file)
}

function openFiles(): readonly string[] {
  const folder = `/proc/${broker.pid}/fd`
  return readdirSync(folder).filter((fd) => readlinkSync(`${folder}/${fd}`).includes('memfd'))
}

describe('an answer with its end in a file', () => {
  it('of every size reaches the client, whatever happens to the file', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    let next = number
    for (const size of [1, 3900, 3960, 8060, 65_536, 4 << 20]) {
      const frame = frameWith(size)
      client.socket.pause()
      answerFromFile({ connection, number: next }, frame, size)
      await roundTrip(broker, agent)
      broker.native.truncate(file, 0)
      client.socket.resume()
      expect((await client.frames.next()).equals(frame)).toBe(true)
      await client.send(ask)
      expect((await connection.next(Envelope.written)).number).toBe(next)
      next = (await connection.request()).number
    }
    expect(openFiles()).toEqual([])
  })

  it('may have a part in the socket, and follow confirmations', async () => {
    const { client, connection, number } = await converse(broker, broker.startAgent())
    const frame = frameWith(10_000)
    const confirmations = Buffer.concat([1n, 2n].map((each) => encodeEnvelope(Envelope.confirm, each)))
    answerFromFile({ connection, number }, frame, 5000, confirmations)
    expect((await client.frames.next()).equals(frame)).toBe(true)
  })

  it.each([0, 1, 2])(
    'may follow other answers and %i confirmations that the broker reads late',
    async (count) => {
      const { client, connection, number } = await converse(broker, broker.startAgent())
      await client.send(ask, ask)
      await connection.request()
      await connection.request()
      const frame = frameWith(10_000)
      process.kill(broker.pid, 'SIGSTOP')
      const answers = [number, number + 1n].map((each) => encodeEnvelope(Envelope.answer, each, reply))
      await connection.send(Buffer.concat(answers))
      const confirmations = Buffer.concat(Array(count).fill(encodeEnvelope(Envelope.confirm, 1n)))
      answerFromFile({ connection, number: number + 2n }, frame, 5000, confirmations)
      process.kill(broker.pid, 'SIGCONT')
      for (const expected of [reply, reply, frame])
        expect((await client.frames.next()).equals(expected)).toBe(true)
    },
  )

  it('is written although its agent has died meanwhile, and is reported to the next one', async () => {
    const agent = broker.startAgent()
    const conversation = await converse(broker, agent)
    const frame = frameWith(3 << 20)
    conversation.client.socket.pause()
    answerFromFile(conversation, frame, 3 << 20)
    agent.die()
    const { states } = await broker.startAgent().start()
    expect([...states]).toEqual([[conversation.number, State.answered]])
    conversation.client.socket.resume()
    expect((await conversation.client.frames.next()).equals(frame)).toBe(true)
  })

  it('is closed when its client has hung up, or has no room before that', async () => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    await client.send(ask)
    const second = await connection.request()
    client.socket.pause()
    answerFromFile({ connection, number }, frameWith(3 << 20), 3 << 20)
    answerFromFile({ connection, number: second.number }, frameWith(3 << 20), 3 << 20)
    await roundTrip(broker, agent)
    expect(openFiles()).toHaveLength(1)
    client.socket.destroy()
    expect((await connection.next(Envelope.dropped)).number).toBe(number)
    answerFromFile({ connection, number }, frameWith(100), 100)
    await roundTrip(broker, agent)
    expect(openFiles()).toEqual([])
  })
})

describe('an agent is cut off when it sends', () => {
  const inFile = (number: bigint, fileBytes: number, more = flags) =>
    encodeEnvelope(Envelope.answer, number, reply, more, { offset: OFFSET, fileBytes })

  it.each([
    ['an answer in a file without the file', (number: bigint) => inFile(number, 1), () => undefined],
    ['an answer with a file that it does not name', (number: bigint) => inFile(number, 0, KEEP), () => file],
    ['more of an answer in a file than its payload', (number: bigint) => inFile(number, 7), () => file],
    ['an answer that its file does not have', (number: bigint) => inFile(number, 2), () => file],
    ['an answer in something else than a file', (number: bigint) => inFile(number, 1), () => broker.listener],
  ])('%s', async (_, bytesOf, fdOf) => {
    const agent = broker.startAgent()
    const { client, connection, number } = await converse(broker, agent)
    broker.native.writeAt(file, OFFSET, Buffer.from('r'))
    const fd = fdOf()
    if (fd === undefined) await connection.send(bytesOf(number))
    else connection.sendWith(bytesOf(number), fd)
    expect(await broker.hungPid()).toBe(agent.pid)
    const again = await broker.startAgent().connections.next()
    again.answer((await again.request()).number, reply)
    expect(await client.frames.next()).toEqual(reply)
  })
})

describe('the outcome of an answer', () => {
  it('is reported with the next request of its client, or soon without one', async () => {
    const { client, connection, number: first } = await converse(broker, broker.startAgent())
    const arrived: number[] = []
    connection.open().on('data', (chunk: Buffer) => arrived.push(chunk.length))
    // On a busy machine the broker's pause may end before the request comes; otherwise both arrive in one piece.
    const both = 2 * 32 + ask.length
    let number = first
    for (let turn = 0; turn < 20 && !arrived.includes(both); turn++) {
      connection.answerKept(number, reply)
      await client.frames.next()
      await client.send(ask)
      expect((await connection.next(Envelope.written)).number).toBe(number)
      number = (await connection.request()).number
    }
    expect(arrived).toContain(both)
    connection.answerKept(number, reply)
    expect((await connection.next(Envelope.written)).number).toBe(number)
  })
})
