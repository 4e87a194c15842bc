import { afterAll, beforeAll, describe, expect, it, onTestFailed } from 'vitest'
import { connectOnce } from '../../../src/client/connection/connect-agent.ts'
import { dial } from '../../../src/client/connection/dial.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { lastingSession } from '../../../src/client/lasting-session.ts'
import {
  IntrospectionDefinition,
  type StreamChanged,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { Pod, RemoteProcess } from '../../support/containers/pod.ts'
import { FreezingMachine } from '../../support/freezes/machine.ts'
import { listenForMany, type ManyConnections } from '../../support/host/host-ports.ts'
import { LosingReader, LosingWriter } from '../../support/host/losing-host.ts'
import { ResumingReader, ResumingWriter } from '../../support/host/resuming-host.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'

/** How often each kind of container is there, how many lines it prints at each of its inputs, and how its streams go. */
const KINDS = [
  { count: 5, lines: 8000, by: 'ports', terminal: false },
  // More than the connection and its buffers hold.
  { count: 2, lines: 100_000, by: 'ports', terminal: false },
  { count: 3, lines: 8000, by: 'ports', terminal: true },
  { count: 7, lines: 8000, by: 'calls', terminal: false },
  { count: 3, lines: 8000, by: 'calls', terminal: true },
] as const

const SCRIPT = `if [ -t 0 ]; then stty raw -echo; fi
echo ready
while read lines && [ $lines != 0 ]; do seq 1 $lines; done`
const READY = 'ready\n'
const ROUNDS = 4
/** Of a round's output, what is read before the device goes. */
const READ_BYTES = 4096

type Machine = Pick<FreezingMachine, 'killDaemon' | 'plug' | 'unplug' | 'freeze'>

/** The ways in which the device goes, each after one round of input and output. */
const LOSSES: readonly ((machine: Machine, words: readonly string[]) => Promise<void>)[] = [
  (machine) => machine.unplug().then(() => machine.plug()),
  async (machine) => {
    await machine.killDaemon()
    await machine.unplug()
    await machine.plug()
  },
  // Its device is unplugged, and another plugged.
  (machine, words) => machine.freeze(words, 500),
]

class Talk {
  readonly input: Buffer
  readonly output: Buffer
  readonly #lines: number
  readonly #roundBytes: number

  constructor(lines: number) {
    this.#lines = lines
    this.input = Buffer.from(`${`${lines}\n`.repeat(ROUNDS)}0\n`)
    const round = Array.from({ length: lines }, (_, line) => `${line + 1}\n`).join('')
    this.#roundBytes = round.length
    this.output = Buffer.from(READY + round.repeat(ROUNDS))
  }

  /** The length of the input up to the end of a round. */
  inputUntil(round: number): number {
    return round === ROUNDS - 1 ? this.input.length : (round + 1) * `${this.#lines}\n`.length
  }

  /** Of the output, up to the beginning of a round. */
  outputUntil(round: number): number {
    return READY.length + round * this.#roundBytes
  }
}

/** A container, as the host sees it. */
interface Held {
  /** Passes the input of a round, and reads some of its output; of the last round, all. */
  pass(round: number): Promise<void>
  /** Takes the next connections. `told` are the totals of the streams that have lost theirs. */
  goOn(told: ReadonlyMap<string, number>): Promise<void>
  readonly process: RemoteProcess
  /** Bytes of output that were told as lost. */
  readonly lost: number
}

describe.skipIf(cannotBoot() !== undefined).each([
  {
    name: 'loses and repeats no byte',
    words: ['agent.stream_grace=600', 'agent.stream_resume=true'],
    resumes: true,
  },
  { name: 'loses exactly the bytes that it tells', words: ['agent.stream_grace=600'], resumes: false },
])('a guest with $words whose vsock device goes, beside 20 containers', ({ name, words, resumes }) => {
  const machine = new FreezingMachine('restore', { byVsock: true })
  const over = new AbortController()
  const listening: ManyConnections[] = []
  let plugged = Promise.resolve()
  beforeAll(() => machine.boot(words), 180_000)
  afterAll(async () => {
    over.abort()
    for (const each of listening) each.close()
    await machine.close()
  })

  /** A session that goes on over each device. */
  async function session() {
    const { signal } = over
    const first = await machine.connect()
    return lastingSession(first, {
      dial: async (each) => {
        await plugged
        return await connectOnce({ connect: (attempt) => dial(machine.address, attempt) }, each)
      },
      ...{ returnMs: 300_000, onLoss: () => {}, signal },
    })
  }

  async function byPorts(pod: Pod, id: string, { lines, terminal, number }: Given): Promise<Held> {
    const talk = new Talk(lines)
    const stdoutPort = 7000 + number
    // The streams of a terminal may have one connection, unless they resume.
    const stdinPort = terminal && !resumes ? stdoutPort : 8000 + number
    const ports = new Map<number, ManyConnections>()
    for (const port of new Set([stdinPort, stdoutPort]))
      ports.set(port, await listenForMany(`${machine.socketPath}_${port}`))
    listening.push(...ports.values())
    const next = async () => {
      const made = new Map<number, Awaited<ReturnType<ManyConnections['next']>>>()
      for (const [port, connections] of ports) made.set(port, await connections.next())
      return { stdin: made.get(stdinPort) ?? expect.fail(), stdout: made.get(stdoutPort) ?? expect.fail() }
    }
    const reader = resumes ? new ResumingReader() : new LosingReader(talk.output)
    const writer = resumes ? new ResumingWriter(talk.input) : new LosingWriter(talk.input)
    const connecting = next()
    const process = await pod.run(id, ['sh', '-c', SCRIPT], { terminal, ports: { stdinPort, stdoutPort } })
    let now = await connecting
    await reader.read(now.stdout, READY.length)
    return {
      process,
      get lost() {
        return reader instanceof LosingReader ? reader.lost : 0
      },
      pass: async (round) => {
        const isLast = round === ROUNDS - 1
        const most = isLast ? Number.POSITIVE_INFINITY : talk.outputUntil(round) + READ_BYTES
        await Promise.all([
          writer.writeUntil(now.stdin, talk.inputUntil(round)),
          reader.read(now.stdout, most),
        ])
        if (!isLast) {
          // More is on its way when the device goes.
          const more = talk.inputUntil(round) + 3
          if (writer instanceof LosingWriter) await writer.writeUntil(now.stdin, more)
          else now.stdin.write(talk.input.subarray(writer.acknowledged, more))
          return
        }
        expect(reader.total).toBe(talk.output.length)
        if (reader instanceof ResumingReader) expect(reader.bytes.equals(talk.output)).toBe(true)
      },
      goOn: async (told) => {
        if (reader instanceof LosingReader) reader.lose(told.get(`${id} stdout`) ?? expect.fail())
        if (writer instanceof LosingWriter) writer.lose(told.get(`${id} stdin`) ?? expect.fail())
        now = await next()
      },
    }
  }

  async function byCalls(pod: Pod, id: string, { lines, terminal }: Given): Promise<Held> {
    const talk = new Talk(lines)
    const process = await pod.run(id, ['sh', '-c', SCRIPT], { terminal })
    const begin = await process.readUntil(READY)
    // It reads all the time, so a read is open whenever the device goes.
    const reading = process.readAll()
    reading.catch(() => {})
    return {
      process,
      lost: 0,
      pass: async (round) => {
        const from = round === 0 ? 0 : talk.inputUntil(round - 1)
        await process.write(talk.input.subarray(from, talk.inputUntil(round)))
        if (round < ROUNDS - 1) return
        expect(Buffer.concat([Buffer.from(begin), await reading]).equals(talk.output)).toBe(true)
      },
      goOn: async () => {},
    }
  }

  it(name, { timeout: 450_000 }, async () => {
    const waiting = new Set<string>()
    onTestFailed(() => void process.stderr.write(`lost-vsock waited for: ${[...waiting].join(', ')}\n`))
    /** Waits for `work` under a name that a failure tells. */
    const within = async <T>(step: string, work: Promise<T>) => {
      waiting.add(step)
      const result = await work
      waiting.delete(step)
      return result
    }
    const ofAll = (step: string, work: (each: Held) => Promise<void>) =>
      Promise.all(held.map((each, number) => within(`c${number}: ${step}`, work(each))))
    const lasting = await session()
    const agent = agentOf(lasting)
    const introspection = clientFor(IntrospectionDefinition, lasting)
    const pod = await createPod(agent, '05')
    const held: Held[] = []
    for (const { by, count, lines, terminal } of KINDS) {
      for (let one = 0; one < count; one++) {
        const number = held.length
        const make = by === 'ports' ? byPorts : byCalls
        held.push(await make(pod, `c${number}`, { lines, terminal, number }))
      }
    }
    expect(held).toHaveLength(20)
    const streams = 2 * KINDS.reduce((sum, { by, count }) => sum + (by === 'ports' ? count : 0), 0)
    let after = 0n
    for (const [round, lose] of LOSSES.entries()) {
      await ofAll(`pass ${round}`, (each) => each.pass(round))
      const { promise, resolve } = Promise.withResolvers<void>()
      plugged = promise
      await within(`loss ${round}`, lose(machine, words))
      resolve()
      const told = new Map<string, number>()
      while (told.size < streams) {
        const asked = introspection.getEvents({ afterSequence: after, timeoutMs: 60_000, limit: 0 })
        const had = [...told.keys()].join(' ')
        const { events, lastSequence } = await within(`events after ${after}, told ${had}`, asked)
        const lost = (change: StreamChanged | undefined) => change?.action === 'detached'
        for (const { streamChanged: one } of events)
          if (one !== undefined && lost(one)) told.set(`${one.containerId} ${one.stream}`, Number(one.total))
        after = lastSequence
      }
      await ofAll(`go on ${round}`, (each) => each.goOn(told))
    }
    await ofAll('last pass', (each) => each.pass(ROUNDS - 1))
    const exits = Promise.all(held.map(({ process }) => process.wait()))
    expect(await within('exits', exits)).toEqual(held.map(() => 0))
    const lost = held.reduce((sum, each) => sum + each.lost, 0)
    expect(lost > 0).toBe(!resumes)
    lasting.close()
  })
})

interface Given {
  readonly lines: number
  readonly terminal: boolean
  readonly number: number
}
