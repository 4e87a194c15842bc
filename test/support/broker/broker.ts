import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { checkErrno, unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { realNative } from '../os/real-native.ts'
import { temporaryFolder } from '../temporary-folder.ts'
import { BrokerClient } from './client.ts'
import { MessageSocket } from './message-socket.ts'
import { PlayedAgent } from './played-agent.ts'
import { HELLO, type Hello, PROTOCOL_VERSION, Vminit } from './records.ts'

/** A broker, below the test in vminit's place. The test plays the agents and the clients. */
export class TestBroker {
  readonly native: Native
  readonly #handles: SocketHandles
  /** Resolves with the status or signal that ended the broker. */
  readonly ended: Promise<number | string>
  readonly path = join(temporaryFolder(), 'api.sock')
  readonly #child: ChildProcess
  readonly #vminit: MessageSocket
  readonly listener: Fd
  readonly #agents: PlayedAgent[] = []
  readonly #clients: BrokerClient[] = []
  #log = ''
  #lastPid = 1000
  #isClosed = false

  /** Starts a `vminit` as the broker, with more in its environment. */
  static async start(vminit: string, env: Readonly<Record<string, string>> = {}): Promise<TestBroker> {
    return new TestBroker(vminit, await realNative(), env)
  }

  private constructor(vminit: string, native: Native, env: Readonly<Record<string, string>>) {
    this.native = native
    this.#handles = new SocketHandles(native)
    const [parentEnd, childEnd] = unwrap('open', 'a message pair', native.messagePair())
    this.#child = spawn(vminit, ['--broker'], {
      stdio: ['ignore', 'ignore', 'pipe', childEnd],
      env: { ...process.env, ...env },
    })
    native.close(childEnd)
    this.#vminit = new MessageSocket(native, parentEnd)
    this.listener = checkErrno('listen at', this.path, native.unixListen(this.path, 4096))
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.#log += chunk.toString()
    })
    this.ended = new Promise((resolve) => {
      this.#child.once('error', ({ message }) => resolve(message))
      this.#child.once('close', (status, signal) => resolve(status ?? signal ?? 'unknown'))
    })
    // Who waits for a broker that has ended must not wait for ever.
    void this.ended.then(() => this.#close())
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  /** What the broker has logged, and a sanitizer has found. */
  get log(): string {
    return this.#log
  }

  /** Announces an agent. Returns its end of the control socket. */
  announceAgent(): Fd {
    const [agentEnd, brokerEnd] = unwrap('open', 'a message pair', this.native.messagePair())
    this.#lastPid += 1
    this.#vminit.send(vminitMessage(Vminit.agent, this.#lastPid), brokerEnd)
    this.native.close(brokerEnd)
    return agentEnd
  }

  /** Starts an agent that has not said hello. */
  startSilentAgent(): PlayedAgent {
    const agentEnd = this.announceAgent()
    const agent = new PlayedAgent({ native: this.native, handles: this.#handles }, agentEnd, this.#lastPid)
    this.#agents.push(agent)
    return agent
  }

  /** Starts an agent that says hello, with the listening socket at `path` unless it has another. */
  startAgent(hello: Partial<Hello> = {}, listener = this.listener): PlayedAgent {
    const agent = this.startSilentAgent()
    agent.sayHello({ ...HELLO, ...hello }, listener)
    return agent
  }

  /** Sends a message as vminit. */
  sendAsVminit(data: Buffer, passed?: Fd): void {
    this.#vminit.send(data, passed)
  }

  /** Pings as vminit, and returns the message that the broker answers. */
  async ping(number: number): Promise<Buffer> {
    this.#vminit.send(vminitMessage(Vminit.ping, number))
    return (await this.#vminit.inbox.next()).data
  }

  /** Announces the power-off as vminit, and returns the message that the broker answers. */
  async leave(timeoutMs: number): Promise<Buffer> {
    this.#vminit.send(vminitMessage(Vminit.leave, timeoutMs))
    return (await this.#vminit.inbox.next()).data
  }

  /** The pid of the agent that vminit is told to kill next. */
  async hungPid(): Promise<number> {
    const { data } = await this.#vminit.inbox.next()
    if (data.readUInt32LE(4) !== Vminit.hung) throw new Error('another message than HUNG')
    return data.readUInt32LE(8)
  }

  /** Connects a client to `path`, or to a TCP port of this machine. */
  async connect(target: string | number = this.path): Promise<BrokerClient> {
    const client = await BrokerClient.connect(target)
    this.#clients.push(client)
    return client
  }

  /** Resident memory in KiB. */
  residentKib(): number {
    const [, kib = ''] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8')) ?? []
    return Number(kib)
  }

  /** The time that the broker has used of CPUs, in milliseconds. */
  cpuMs(): number {
    return Number(readFileSync(`/proc/${this.pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6
  }

  /** Ends the broker as vminit's end does, and all that the test has opened. Returns the broker's status. */
  async stop(): Promise<number | string> {
    this.#close()
    return this.ended
  }

  #close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const agent of this.#agents) agent.die()
    for (const client of this.#clients) client.socket.destroy()
    this.#vminit.close()
    this.native.close(this.listener)
  }
}

/** A message between vminit and the broker. */
export function vminitMessage(kind: number, number: number): Buffer {
  const message = Buffer.alloc(16)
  message.writeUInt32LE(PROTOCOL_VERSION, 0)
  message.writeUInt32LE(kind, 4)
  message.writeUInt32LE(number, 8)
  return message
}
