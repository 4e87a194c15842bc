import { execFileSync } from 'node:child_process'
import { closeSync, constants, openSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { Fd, Streams } from '../../../src/os/streams/streams.ts'
import { realNative } from '../../support/os/real-native.ts'
import { KeptDescriptors } from './kept-descriptors.ts'

const KILLS = 60
const PIECE_BYTES = 8000

let native: Native
let streams: Streams
beforeAll(async () => {
  native = await realNative()
  streams = linuxStreams(native)
})

/** No two parts of the numbered lines are equal. */
const LINE_BYTES = 10
function numbered(from: number, length: number): Buffer {
  const first = Math.floor(from / LINE_BYTES)
  const lines = Array.from({ length: Math.ceil(length / LINE_BYTES) + 2 }, (_, index) =>
    String(first + index).padStart(LINE_BYTES - 1, '0'),
  )
  return Buffer.from(`${lines.join('\n')}\n`).subarray(from % LINE_BYTES, (from % LINE_BYTES) + length)
}

/** One direction of a process: the sent and the arrived bytes, each byte in its place. */
class Flow {
  sent = 0
  arrived = 0
  readonly name: string
  #changed = Promise.withResolvers<void>()

  constructor(name: string) {
    this.name = name
  }

  next(): Buffer {
    return numbered(this.sent, PIECE_BYTES)
  }

  take(data: Uint8Array): void {
    const wanted = numbered(this.arrived, data.length)
    if (!wanted.equals(data)) {
      const [got, want] = [Buffer.from(data).toString('latin1'), wanted.toString('latin1')]
      throw new Error(`${this.name} at ${this.arrived}: ${got.slice(0, 60)}, want ${want.slice(0, 60)}`)
    }
    this.arrived += data.length
    this.#changed.resolve()
    this.#changed = Promise.withResolvers()
  }

  async untilArrived(): Promise<void> {
    while (this.arrived < this.sent) await this.#changed.promise
  }
}

async function openTerminal(): Promise<{ readonly master: Fd; readonly slave: Fd }> {
  const master = openSync('/dev/ptmx', constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK)
  const number = Buffer.alloc(4)
  // TIOCSPTLCK unlocks it, TIOCGPTN names it.
  await native.ioctl(master, 0x4004_5431, Buffer.alloc(4))
  await native.ioctl(master, 0x8004_5430, number)
  const path = `/dev/pts/${number.readUInt32LE(0)}`
  const slave = openSync(path, constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK)
  execFileSync('stty', ['raw', '-echo'], { stdio: [slave, 'ignore', 'inherit'] })
  return { master, slave }
}

describe('the streams of processes whose agent is killed at random moments', () => {
  it('lose and repeat no byte: pipes and terminals, by calls and by connections', async () => {
    const agents = new KeptDescriptors(native, streams)
    const flows: Flow[] = []
    const work: Promise<void>[] = []
    const stopped = new AbortController()
    let events = 0
    const flow = (name: string) => {
      const made = new Flow(name)
      flows.push(made)
      return made
    }

    /** Sends whole pieces of numbered lines until the end. */
    const produce = async (to: Flow, fd: Fd) => {
      native.setNonBlocking(fd, true)
      while (!stopped.signal.aborted) {
        let rest = to.next()
        to.sent += rest.length
        while (rest.length > 0) {
          const count = streams.tryWrite(fd, rest)
          rest = rest.subarray(count)
          if (count === 0) await streams.writable(fd)
        }
      }
    }
    const consume = async (from: Flow, fd: Fd) => {
      native.setNonBlocking(fd, true)
      for (;;) {
        await streams.readable(fd)
        const data = streams.tryRead(fd, 65_536)
        if (data?.length === 0) return
        if (data !== undefined) from.take(data)
        events += 1
      }
    }

    const keep = (name: string, fd: Fd) => void agents.kept.set(name, fd)
    const connect = (name: string): Fd => {
      const [agentsEnd, hostsEnd] = unwrap('open', 'a socket pair', native.socketPair())
      keep(name, agentsEnd)
      return hostsEnd
    }
    const pipes = (key: string) => {
      const [stdin, agentsInput] = unwrap('open', 'a pipe', native.pipe())
      const [agentsOutput, stdout] = unwrap('open', 'a pipe', native.pipe())
      for (const fd of [agentsInput, agentsOutput]) native.setNonBlocking(fd, true)
      keep(`${key}-stdin`, agentsInput)
      keep(`${key}-stdout`, agentsOutput)
      return { stdin, stdout }
    }
    const terminal = async (key: string) => {
      const { master, slave } = await openTerminal()
      keep(`${key}-master`, master)
      keep(`${key}-stdin`, native.duplicate(master))
      return { stdin: slave, stdout: native.duplicate(slave) }
    }

    const calls = new Map<string, Calls>()
    const consumers: Promise<void>[] = []
    for (const [key, ends, byCalls] of [
      ['p1', pipes('p1'), true],
      ['p2', await terminal('p2'), true],
      ['p3', pipes('p3'), false],
      ['p4', await terminal('p4'), false],
    ] as const) {
      const [input, output] = [flow(`${key} input`), flow(`${key} output`)]
      consumers.push(consume(input, ends.stdin))
      work.push(produce(output, ends.stdout))
      if (byCalls) calls.set(key, new Calls(key, input, output))
      else {
        const hosts = { input: connect(`${key}-stdin-host`), output: connect(`${key}-stdout-host`) }
        work.push(produce(input, hosts.input))
        consumers.push(consume(output, hosts.output))
      }
    }
    const failed = Promise.race(consumers).then(() => {
      throw new Error('a stream has ended')
    })
    failed.catch(() => {})

    /** Runs an agent until it is killed after `patience` events, or until everything has arrived. */
    const live = async (patience: number | undefined) => {
      await agents.start('p2,p4', 'p1,p3')
      const dueAt = patience === undefined ? Number.POSITIVE_INFINITY : events + patience
      const finish = async () => {
        await Promise.all([...work, ...flows.map((one) => one.untilArrived())])
        agents.kill()
      }
      if (patience === undefined) finish().catch(() => {})
      for (;;) {
        if (events >= dueAt) agents.kill()
        const message = await agents.next()
        if (message === undefined) return
        events += 1
        const [, what = '', key = '', rest = ''] = /^(\w+) ?(\w*)(.*)$/s.exec(message) ?? []
        if (what === 'restored') {
          for (const [one, call] of calls) call.restored(message, one, agents)
        } else calls.get(key)?.on(what, rest.slice(1))
        for (const call of calls.values()) call.ask(agents, stopped.signal.aborted)
      }
    }
    const lives = async () => {
      for (let kill = 0; kill < KILLS; kill++) await live(Math.floor(Math.random() ** 2 * 120))
      stopped.abort()
      await live(undefined)
    }
    await Promise.race([lives(), failed])
    for (const { name, sent, arrived } of flows) {
      expect({ name, bytes: arrived }).toEqual({ name, bytes: sent })
      expect(arrived).toBeGreaterThan(100_000)
    }
    for (const fd of agents.kept.values()) closeSync(fd)
  }, 120_000)

  it('end input by a connection with what had arrived, also when the agent dies before that is delivered', async () => {
    const agents = new KeptDescriptors(native, streams)
    const [stdin, agentsInput] = unwrap('open', 'a pipe', native.pipe())
    const [agentsEnd, host] = unwrap('open', 'a socket pair', native.socketPair())
    for (const fd of [stdin, agentsInput, host]) native.setNonBlocking(fd, true)
    agents.kept.set('p1-stdin', agentsInput)
    agents.kept.set('p1-stdin-host', agentsEnd)
    // More than the pipes in between hold.
    const sent = streams.tryWrite(host, numbered(0, 200_000))
    expect(sent).toBeGreaterThan(150_000)
    await agents.start('', 'p1')
    agents.send('end p1')
    expect([await agents.next(), await agents.next()]).toEqual(['restored ', 'ended p1'])
    agents.kill()
    expect(await agents.next()).toBeUndefined()
    await agents.start('', 'p1')
    expect(await agents.next()).toBe('restored ')
    const flow = new Flow('input')
    // The test does vminit's part, closing what the agent removes, while the process reads.
    const ended = agents.next()
    for (let isOver = false; !isOver; ) {
      await streams.readable(stdin)
      const data = streams.tryRead(stdin, 65_536)
      if (data !== undefined && data.length > 0) flow.take(data)
      isOver = data?.length === 0
    }
    expect(flow.arrived).toBe(sent)
    expect(() => streams.tryWrite(host, Buffer.from('late'))).toThrow('EPIPE')
    // The process may see its end before the agent has removed the rest.
    await expect.poll(() => [...agents.kept.keys()]).toEqual([])
    agents.kill()
    await ended
    for (const fd of [stdin, host]) streams.close(fd)
  }, 60_000)
})

/** The client and the broker of a process's calls: one read, and two writes, at a time. Every third is in a file. */
class Calls {
  readonly #key: string
  readonly #input: Flow
  readonly #output: Flow
  readonly #open = new Map<string, string>()
  readonly #files = new Map<string, Fd>()
  readonly #answered = new Set<string>()
  #last = 0

  constructor(key: string, input: Flow, output: Flow) {
    this.#key = key
    this.#input = input
    this.#output = output
  }

  restored(message: string, key: string, agents: KeptDescriptors): void {
    for (const one of message.split(' ').filter((word) => word.startsWith(`${key}:`))) {
      const number = one.slice(key.length + 1)
      if (this.#open.has(number)) continue
      agents.send(`settled ${key} ${number} ${this.#answered.has(number) ? 'written' : 'dropped'}`)
    }
    for (const [number, request] of this.#open) agents.send(request, this.#files.get(number))
  }

  ask(agents: KeptDescriptors, isOver: boolean): void {
    const asked = [...this.#open.values()]
    if (!asked.some((one) => one.startsWith('read'))) this.#ask(agents, 'read', '20000')
    const writes = asked.filter((one) => !one.startsWith('read')).length
    for (let more = writes; more < 2 && !isOver; more++) {
      const data = this.#input.next()
      this.#input.sent += data.length
      if (this.#last % 3 === 0) this.#ask(agents, 'stored', String(data.length), this.#fileOf(data))
      else this.#ask(agents, 'write', data.toString('latin1'))
    }
  }

  on(what: string, rest: string): void {
    const [number = ''] = rest.split(' ', 1)
    if (what === 'confirmed') {
      this.#answered.delete(number)
      return
    }
    this.#open.delete(number)
    const file = this.#files.get(number)
    if (file !== undefined) native.close(file)
    this.#files.delete(number)
    this.#answered.add(number)
    if (what === 'read') this.#output.take(Buffer.from(rest.slice(number.length + 1), 'latin1'))
  }

  #fileOf(data: Buffer): Fd {
    const file = streams.memoryFile('frame')
    streams.writeAt(file, 0, data)
    return file
  }

  #ask(agents: KeptDescriptors, what: string, rest: string, file?: Fd): void {
    this.#last += 1
    const request = `${what} ${this.#key} ${this.#last} ${rest}`
    this.#open.set(String(this.#last), request)
    if (file !== undefined) this.#files.set(String(this.#last), file)
    agents.send(request, file)
  }
}
