import { readdirSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect } from 'vitest'
import { encodeRequestFrame } from '../../src/rpc/ttrpc/messages.ts'
import { TestBroker } from '../support/broker/broker.ts'
import { type BrokerClient, frameOf } from '../support/broker/client.ts'
import type { PlayedAgent } from '../support/broker/played-agent.ts'
import {
  encodeControl,
  encodeEnvelope,
  encodeHello,
  HELLO,
  IN_FILE,
  KEEP,
} from '../support/broker/records.ts'
import { anyBytes, CUTS, inPieces, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { recordedCalls } from '../support/fuzz/requests.ts'
import { buildSanitizedVminit } from '../support/vminit/compiled.ts'

const ASK = frameOf(1, 'question')
const REPLY = frameOf(1, 'answer', 2)
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const LIMITS = { ...HELLO, budgetBytes: 8 << 20, maxPayloadBytes: 256 << 10 }

const BUILD_MS = 240_000

const FRAMES = recordedCalls().map(({ stream, service, method, requestBytes }) =>
  encodeRequestFrame(stream, { service, method, payload: requestBytes, timeoutNano: 0n }),
)

const SENT = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom(...FRAMES) },
      { weight: 3, arbitrary: anyBytes([...FRAMES, PREFACE]) },
      { weight: 1, arbitrary: fc.nat(600 << 10).map((size) => frameOf(3, Buffer.alloc(size))) },
    ),
    { minLength: 1, maxLength: 5 },
  )
  .map((parts) => Buffer.concat(parts))

/** An agent's writes to a data socket, without the number of the request. */
const ENVELOPE = fc.record({
  kind: fc.oneof(
    { weight: 9, arbitrary: fc.constantFrom(16, 17, 18) },
    { weight: 1, arbitrary: fc.nat(255) },
  ),
  ahead: fc.oneof({ weight: 4, arbitrary: fc.constant(0n) }, { weight: 1, arbitrary: fc.bigInt(-3n, 3n) }),
  flags: fc.oneof(
    { weight: 9, arbitrary: fc.constantFrom(0, KEEP, IN_FILE, KEEP | IN_FILE) },
    { weight: 1, arbitrary: fc.nat(255) },
  ),
  file: fc.record({ offset: fc.constantFrom(0, 1, 2 ** 40), fileBytes: fc.constantFrom(0, 1, 9, 2 ** 31) }),
  frame: fc.oneof(
    { weight: 3, arbitrary: fc.constant(Buffer.alloc(0)) },
    { weight: 6, arbitrary: fc.constantFrom(REPLY, ...FRAMES) },
    { weight: 1, arbitrary: mutated(FRAMES) },
  ),
})

/** An agent's messages on the control socket. A small `a` may be the number of a real connection or request. */
const MESSAGE = fc.oneof(
  fc
    .record({ kind: fc.nat(20), flags: fc.nat(3), a: fc.bigInt(0n, 1000n) })
    .map((message) => encodeControl(message)),
  mutated([encodeHello(LIMITS), ...[2, 3, 4, 5].map((kind) => encodeControl({ kind, a: 1n }))]),
)

let vminit: string
let broker: TestBroker
let memory: number
let healthy: PlayedAgent
let bystander: BrokerClient
/** The number of the broker's open descriptors with an agent and one client. */
let files: number

function startHealthyAgent(): void {
  healthy = broker.startAgent(LIMITS)
  void healthy.serve(REPLY)
}

async function start(): Promise<void> {
  broker = await TestBroker.start(vminit)
  memory = broker.native.memoryFile('answers')
  broker.native.writeAt(memory, 0, Buffer.alloc(100))
  startHealthyAgent()
  bystander = await broker.connect()
  await ask(bystander)
  // The state after a case: a client of an earlier agent.
  healthy.die()
  startHealthyAgent()
  await ask(bystander)
  files = openFiles()
}

function openFiles(): number {
  return readdirSync(`/proc/${broker.pid}/fd`).length
}

async function stop(): Promise<void> {
  broker.native.close(memory)
  expect(await broker.stop(), broker.log).toBe(0)
  expect(broker.log).not.toMatch(/runtime error|Sanitizer/)
}

async function ask(client: BrokerClient): Promise<void> {
  await client.send(ASK)
  await client.frames.next((frame) => frame.equals(REPLY))
}

/** A disconnected agent can send nothing. */
function trySend(agent: PlayedAgent, message: Buffer): void {
  try {
    agent.sendRaw(message)
  } catch {}
}

beforeAll(async () => {
  vminit = await buildSanitizedVminit()
  await start()
}, BUILD_MS)
afterAll(stop)

async function startAnew(): Promise<void> {
  // Departed clients leave nothing open, and the next agent gets the remaining client's connection.
  await expect.poll(openFiles).toBe(files)
  healthy.die()
  startHealthyAgent()
  await ask(bystander)
  await expect.poll(openFiles).toBe(files)
  await stop()
  await start()
}

describe('the connection broker', () => {
  fuzz('broker/clients', {
    share: 12,
    batch: 200,
    afterBatch: startAnew,
    input: fc.record({ bytes: SENT, cuts: CUTS, turns: fc.nat(10), dies: fc.boolean() }),
    show: ({ bytes, cuts, turns, dies }) =>
      `${turns} turns, ${dies ? 'the agent dies, ' : ''}cut at ${cuts.join(', ')}: ${bytes.toString('hex')}`,
    run: async ({ bytes, cuts, turns, dies }) => {
      const client = await broker.connect()
      for (const piece of inPieces(bytes, cuts)) {
        client.socket.write(piece)
        await turn()
      }
      if (dies) {
        healthy.die()
        startHealthyAgent()
      }
      for (let count = 0; count < turns; count++) await turn()
      client.socket.destroy()
      await ask(bystander)
    },
  })

  fuzz('broker/agents', {
    share: 8,
    batch: 200,
    afterBatch: startAnew,
    input: fc.record({
      envelopes: fc.array(ENVELOPE, { maxLength: 6 }),
      cuts: CUTS,
      messages: fc.array(MESSAGE, { maxLength: 4 }),
      passed: fc.constantFrom('nothing', 'file', 'listener'),
      turns: fc.nat(10),
    }),
    show: ({ envelopes, cuts, messages, passed, turns }) =>
      JSON.stringify({
        envelopes: envelopes.map((each) => ({
          ...each,
          ahead: String(each.ahead),
          frame: each.frame.toString('hex'),
        })),
        messages: messages.map((message) => message.toString('hex')),
        cuts,
        passed,
        turns,
      }),
    run: async ({ envelopes, cuts, messages, passed, turns }) => {
      healthy.die()
      const hostile = broker.startAgent(LIMITS)
      await hostile.start()
      const client = await broker.connect()
      await client.send(ASK)
      const connection = await hostile.connections.next()
      const { number } = await connection.request()
      const bytes = Buffer.concat(
        envelopes.map(({ kind, ahead, flags, frame, file }) =>
          encodeEnvelope(kind, number + ahead, frame, flags, file),
        ),
      )
      const [first, ...others] = inPieces(bytes, cuts)
      const fd = { nothing: undefined, file: memory, listener: broker.listener }[passed]
      if (fd === undefined || first === undefined || first.length === 0) void connection.send(first ?? bytes)
      else connection.sendWith(first, fd)
      for (const piece of others) void connection.send(piece)
      for (const message of messages) trySend(hostile, message)
      for (let count = 0; count < turns; count++) await turn()
      hostile.die()
      startHealthyAgent()
      client.socket.destroy()
      await ask(bystander).catch(async () => {
        // The agent may have closed the bystander's connection.
        bystander = await broker.connect()
        await ask(bystander)
      })
    },
  })
})
