import { type ChildProcess, spawn } from 'node:child_process'
import { appendFileSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { Duplex, type Writable } from 'node:stream'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import type { ChildPlan, HeldChild, Holder, Ring } from './holder.ts'

/** Of the console, and of a reader that falls behind; as the holders of the daemon have it. */
const RING_BYTES = 1 << 20
/** Small pieces of the console are kept in ones of so many bytes. */
const JOINED_BYTES = 4096
/** Of a log, which begins anew then. */
const LOG_BYTES = 1 << 20

interface LocalChild {
  readonly held: HeldChild
  readonly child: ChildProcess
  readonly ended: Promise<void>
}

/**
 * Holds an instance's processes in this process: the kernel kills each of them when this process dies, and nothing is left
 * to be found again. It has the console alone; it listens on no ports.
 */
export class LocalHolder implements Holder {
  /** None of its own. */
  readonly pid = undefined
  readonly ended: Promise<void>
  readonly #folder: string
  readonly #children = new Map<string, LocalChild>()
  readonly #listeners = new Set<(child: HeldChild) => void>()
  readonly #end = Promise.withResolvers<void>()
  #console: ConsoleRing | undefined

  constructor(folder: string) {
    this.#folder = folder
    this.ended = this.#end.promise
  }

  async start({ name, argv, output }: ChildPlan): Promise<HeldChild> {
    // In a session of its own, so that Ctrl-C reaches this process alone. PR_SET_PDEATHSIG stays set across exec.
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', ...argv], {
      detached: true,
      stdio: [output === 'console' ? 'pipe' : 'ignore', 'pipe', 'pipe'],
    })
    const started = Promise.withResolvers<void>()
    child.once('spawn', started.resolve).once('error', started.reject)
    // `close`, not `exit`: by then the last output has arrived.
    const ended = new Promise<void>((resolve) => {
      child.once('close', (code, signal) => {
        this.#ended(name, { code: code ?? undefined, signal: signal ? constants.signals[signal] : undefined })
        resolve()
      })
    })
    this.#keepOutput(name, child)
    await started.promise.catch((error) => {
      throw new AgentError('UNAVAILABLE', `start ${name} through setpriv: ${messageOf(error)}`)
    })
    const held = { name, pid: child.pid ?? 0, exit: undefined }
    this.#children.set(name, { held, child, ended })
    return held
  }

  async kill(name: string, signal: number): Promise<void> {
    this.#children.get(name)?.child.kill(signal)
  }

  async children(): Promise<readonly HeldChild[]> {
    return [...this.#children.values()].map(({ held }) => held)
  }

  onExit(listener: (child: HeldChild) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async listen(path: string): Promise<void> {
    throw new AgentError('UNIMPLEMENTED', `${path}: a machine of one run listens on no ports`)
  }

  async rings(): Promise<readonly Ring[]> {
    return this.#console === undefined ? [] : [this.#console.ring]
  }

  async attach(number: number, offset: bigint): Promise<{ readonly first: bigint; readonly stream: Duplex }> {
    if (number !== 0 || this.#console === undefined)
      throw new AgentError('NOT_FOUND', `ring ${number}: not found`)
    return this.#console.attach(offset)
  }

  async closeRing(number: number): Promise<void> {
    throw new AgentError('UNIMPLEMENTED', `ring ${number}: a machine of one run has the console alone`)
  }

  async takeRing(number: number): Promise<void> {
    throw new AgentError('UNIMPLEMENTED', `ring ${number}: a machine of one run comes from no other host`)
  }

  async memory(path: string): Promise<void> {
    throw new AgentError('UNIMPLEMENTED', `${path}: a machine of one run has no memory of another`)
  }

  async hasSealedMemory(): Promise<boolean> {
    return false
  }

  async relay(): Promise<void> {
    throw new AgentError('UNIMPLEMENTED', 'relay: a machine of one run does not move')
  }

  async setLease(): Promise<void> {
    throw new AgentError('UNIMPLEMENTED', 'lease: a machine of one run has none')
  }

  async heldLease(): Promise<undefined> {}

  async end(): Promise<void> {
    this.disconnect()
    await Promise.all([...this.#children.values()].map(({ ended }) => ended))
    this.#end.resolve()
  }

  /** Ends the children: they live no longer than the connection. */
  disconnect(): void {
    for (const { held } of this.#children.values()) {
      if (held.exit === undefined) killGroup(held.pid)
    }
  }

  #keepOutput(name: string, { stdin, stdout, stderr }: ChildProcess): void {
    const log = logTo(join(this.#folder, `${name}.log`))
    stderr?.on('data', log)
    if (stdin === null) {
      stdout?.on('data', log)
      return
    }
    const ring = new ConsoleRing(stdin)
    this.#console = ring
    stdin.on('error', () => {})
    stdout?.on('data', (chunk: Buffer) => ring.push(chunk)).once('close', () => ring.close())
  }

  #ended(name: string, exit: NonNullable<HeldChild['exit']>): void {
    const child = this.#children.get(name)
    if (child === undefined) return
    const held = { ...child.held, exit }
    this.#children.set(name, { ...child, held })
    for (const listener of this.#listeners) listener(held)
  }
}

/** With the children of the process, which keep its output open, also after its own end. */
function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}

/** Writes before the process's end is told, because its last line may say why it ended. */
function logTo(path: string): (chunk: Buffer) => void {
  let size = 0
  return (chunk) => {
    if (size > LOG_BYTES) size = 0
    const write = size === 0 ? writeFileSync : appendFileSync
    try {
      write(path, chunk, { mode: 0o600 })
      size += chunk.length
    } catch {
      // Such as on a full disk: the process goes on without its log.
    }
  }
}

/** The last bytes of the console, and those who read it. */
class ConsoleRing {
  readonly #input: Writable
  readonly #chunks: Buffer[] = []
  readonly #readers = new Set<Duplex>()
  #first = 0n
  #end = 0n
  #isClosed = false

  constructor(input: Writable) {
    this.#input = input
  }

  get ring(): Ring {
    return { number: 0, first: this.#first, end: this.#end, isClosed: this.#isClosed }
  }

  push(chunk: Buffer): void {
    const last = this.#chunks.at(-1) ?? chunk
    if (last !== chunk && last.length + chunk.length <= JOINED_BYTES)
      this.#chunks.splice(-1, 1, Buffer.concat([last, chunk]))
    else this.#chunks.push(chunk)
    this.#end += BigInt(chunk.length)
    while (this.#end - this.#first > RING_BYTES) this.#first += BigInt(this.#chunks.shift()?.length ?? 0)
    for (const reader of this.#readers) {
      if (reader.readableLength > RING_BYTES) this.#release(reader)
      else reader.push(chunk)
    }
  }

  close(): void {
    this.#isClosed = true
    for (const reader of this.#readers) this.#release(reader)
  }

  attach(offset: bigint): { readonly first: bigint; readonly stream: Duplex } {
    if (offset > this.#end)
      throw new AgentError('OUT_OF_RANGE', `ring 0: offset ${offset}, want at most ${this.#end}`)
    const low = this.#first
    const first = offset < low ? low : offset
    const stream = new Duplex({
      allowHalfOpen: false,
      read: () => {},
      write: (chunk, _, done) => this.#input.write(chunk, () => done()),
      destroy: (error, done) => {
        this.#readers.delete(stream)
        done(error)
      },
    })
    stream.push(Buffer.concat(this.#chunks).subarray(Number(first - low)))
    this.#readers.add(stream)
    if (this.#isClosed) this.#release(stream)
    return { first, stream }
  }

  #release(reader: Duplex): void {
    this.#readers.delete(reader)
    reader.push(null)
  }
}
