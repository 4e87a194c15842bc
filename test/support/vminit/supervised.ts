import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { onTestFinished } from 'vitest'
import type { AgentEvent, AgentOrder } from './orders.ts'
import { type ChannelRecord, Kind, parseRecord } from './record.ts'

const testAgent: readonly string[] = [process.execPath, join(import.meta.dirname, 'test-agent.ts')]

export interface Outcome {
  /** 128 + signal when a signal ended it. */
  readonly status: number | string
  readonly stdout: string
  readonly stderr: string
}

/** A program that takes longer is killed, so that a failing test leaves nothing behind. */
const RUN_LIMIT_MS = 30_000

export async function run(
  command: readonly [string, ...string[]],
  input = Buffer.alloc(0),
): Promise<Outcome> {
  const [program, ...programArguments] = command
  const child = spawn(program, programArguments, {
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: RUN_LIMIT_MS,
    killSignal: 'SIGKILL',
  })
  // A program that does not read its input may end before it is written.
  child.stdin.on('error', () => {}).end(input)
  const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), ended(child)])
  return { status, stdout, stderr }
}

async function text(stream: Readable): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

function ended(child: ChildProcess): Promise<number | string> {
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (status, signal) => resolve(status ?? signal ?? 'unknown'))
  })
}

/** Starts `vminit` around the test agent, waits for the agent, and kills both when the test is over. */
export async function supervise(vminit: string): Promise<Supervised> {
  const supervised = new Supervised(
    spawn(vminit, ['--', ...testAgent], { stdio: ['pipe', 'pipe', 'ignore'] }),
  )
  onTestFinished(() => supervised.kill())
  await supervised.started()
  return supervised
}

export class Supervised {
  readonly events: AgentEvent[] = []
  readonly ended: Promise<number | string>
  readonly #vminit: ChildProcessByStdio<Writable, Readable, null>
  #changed = Promise.withResolvers<void>()
  #agentPid = 0

  constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#vminit = child
    this.ended = ended(child)
    createInterface({ input: child.stdout }).on('line', (line) => this.#take(line))
  }

  get vminitPid(): number {
    return this.#vminit.pid ?? 0
  }

  get agentPid(): number {
    return this.#agentPid
  }

  get records(): readonly ChannelRecord[] {
    return this.events.flatMap((each) =>
      each.event === 'record' ? [parseRecord(Buffer.from(each.hex, 'hex'))] : [],
    )
  }

  get exits(): readonly ChannelRecord[] {
    return this.records.filter(({ kind }) => kind === Kind.EXIT || kind === Kind.OVERFLOW)
  }

  tell(order: AgentOrder): void {
    this.#vminit.stdin.write(`${JSON.stringify(order)}\n`)
  }

  async until(found: (self: this) => boolean): Promise<void> {
    while (!found(this)) await this.#changed.promise
  }

  started(restarts = 0): Promise<void> {
    return this.until(({ events }) =>
      events.some((each) => each.event === 'started' && each.arguments[3] === String(restarts)),
    )
  }

  async shell(script: string): Promise<void> {
    const before = this.#count('shell-ended')
    this.tell({ order: 'shell', script })
    await this.until(() => this.#count('shell-ended') > before)
  }

  async kill(): Promise<void> {
    // vminit is killed first; otherwise it would start another agent.
    this.#vminit.kill('SIGKILL')
    await this.ended
    if (this.#agentPid !== 0) killIfThere(this.#agentPid)
  }

  #count(event: AgentEvent['event']): number {
    return this.events.filter((each) => each.event === event).length
  }

  #take(line: string): void {
    const event: AgentEvent = JSON.parse(line)
    this.events.push(event)
    if (event.event === 'started') this.#agentPid = event.pid
    const changed = this.#changed
    this.#changed = Promise.withResolvers()
    changed.resolve()
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {}
}
