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

/** A broker that runs below the test in place of vminit. The test plays the agents and the clients. */
export class TestBroker {
  readonly native: Native
  readonly #handles: SocketHandles
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
    void this.ended.then(() => this.#close())
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

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

  startSilentAgent(): PlayedAgent {
    const agentEnd = this.announceAgent()
    const agent = new PlayedAgent({ native: this.native, handles: this.#handles }, agentEnd, this.#lastPid)
    this.#agents.push(agent)
    return agent
  }

  /** Starts an agent that sends HELLO with `listener`. */
  startAgent(hello: Partial<Hello> = {}, listener = this.listener): PlayedAgent {
    const agent = this.startSilentAgent()
    agent.sayHello({ ...HELLO, ...hello }, listener)
    return agent
  }

  sendAsVminit(data: Buffer, passed?: Fd): void {
    this.#vminit.send(data, passed)
  }

  async ping(number: number): Promise<Buffer> {
    this.#vminit.send(vminitMessage(Vminit.ping, number))
    return (await this.#vminit.inbox.next()).data
  }

  /** Announces the power-off as vminit and returns the broker's answer. */
  async leave(timeoutMs: number): Promise<Buffer> {
    this.#vminit.send(vminitMessage(Vminit.leave, timeoutMs))
    return (await this.#vminit.inbox.next()).data
  }

  /** Resolves with the pid of the next agent that the broker reports as hung. */
  async hungPid(): Promise<number> {
    const { data } = await this.#vminit.inbox.next()
    if (data.readUInt32LE(4) !== Vminit.hung) throw new Error('another message than HUNG')
    return data.readUInt32LE(8)
  }

  async connect(target: string | number = this.path): Promise<BrokerClient> {
    const client = await BrokerClient.connect(target)
    this.#clients.push(client)
    return client
  }

  residentKib(): number {
    const [, kib = ''] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8')) ?? []
    return Number(kib)
  }

  cpuMs(): number {
    return Number(readFileSync(`/proc/${this.pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6
  }

  /** Stops the broker by closing everything, as vminit's end does. Returns its status. */
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

export function vminitMessage(kind: number, number: number): Buffer {
  const message = Buffer.alloc(16)
  message.writeUInt32LE(PROTOCOL_VERSION, 0)
  message.writeUInt32LE(kind, 4)
  message.writeUInt32LE(number, 8)
  return message
}
