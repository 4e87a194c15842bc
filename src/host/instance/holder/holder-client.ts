import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { abortable } from '../../../base/abort.ts'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { checkErrno } from '../../../os/errors.ts'
import type { Native } from '../../../os/native.ts'
import { procStatFields } from '../../../os/process/proc-stat.ts'
import { handleOf } from '../../../os/sockets/socket-handles.ts'
import type { Fd } from '../../../os/streams/streams.ts'
import type { ChildPlan, HeldChild, HeldLease, Holder, Ring } from './holder.ts'
import { checked, commandLine, type Greeting, parseChild, parseGreeting, words } from './holder-lines.ts'

/** The room of an address of AF_UNIX; Node would cut a longer path. */
const LONGEST_PATH = 107

/** For an answer. The holder itself waits 5 s for a program that it starts. */
const ANSWER_TIMEOUT_MS = 10_000
/** For a copy of a guest's memory, by a disk of 100 MB/s with 60 GB in it. */
const MEMORY_TIMEOUT_MS = 600_000
/** For the kernel to end everything in the namespace. */
const END_TIMEOUT_MS = 30_000
/** Between two looks at a holder whose connection has ended. */
const LOOK_MS = 10

interface Waiter {
  /** The first line of a connection ends its answer, whatever it is. */
  readonly isGreeting: boolean
  readonly lines: string[][]
  readonly done: PromiseWithResolvers<readonly string[][]>
}

/** A connection of this process to a holder. Commands are answered in their order. */
export class HolderClient implements Holder {
  readonly ended: Promise<void>
  readonly #path: string
  readonly #socket: Socket
  #greeting: Greeting = { pid: 0, startTime: '' }
  readonly #waiters: Waiter[] = []
  readonly #listeners = new Set<(child: HeldChild) => void>()
  #rest = ''
  #isDisconnected = false

  private constructor(path: string, socket: Socket) {
    this.#path = path
    this.#socket = socket
    const closed = new Promise<void>((resolve) => socket.once('close', resolve))
    this.ended = closed.then(() => this.#awaitEnd())
    socket.setEncoding('utf8')
    socket.on('data', (text: string) => this.#receive(text))
  }

  static async open(socket: Socket, path: string): Promise<HolderClient> {
    const client = new HolderClient(path, socket)
    try {
      await client.#greet()
      checkAlive(client.#greeting, path)
      // It is carried out before the commands that follow.
      client.#command('watch').catch(() => socket.destroy())
      return client
    } catch (error) {
      socket.destroy()
      throw error
    }
  }

  /** The same with the starter's end of the first connection, and the words of its order. `path` is where others connect later. */
  static async begin(socket: Socket, path: string, order: readonly string[]): Promise<HolderClient> {
    const client = new HolderClient(path, socket)
    try {
      socket.write(commandLine(order))
      await client.#greet()
      return client
    } catch (error) {
      socket.destroy()
      throw error
    }
  }

  get pid(): number {
    return this.#greeting.pid
  }

  async #greet(): Promise<void> {
    const [line = []] = await this.#answer('greeting', { ms: ANSWER_TIMEOUT_MS, isGreeting: true })
    this.#greeting = parseGreeting(line, this.#path)
  }

  async start({ name, output, argv, walls }: ChildPlan): Promise<HeldChild> {
    const words = walls === undefined ? ['start', name, output] : ['walled', name, output, ...walls, '--']
    const answer = await this.#command(...words, ...argv)
    return { name, pid: Number(answer.at(-1)?.[1]), exit: undefined }
  }

  async kill(name: string, signal: number): Promise<void> {
    await this.#command('kill', name, String(signal))
  }

  async children(): Promise<readonly HeldChild[]> {
    return (await this.#command('children')).slice(0, -1).map((words) => parseChild(words.slice(1)))
  }

  onExit(listener: (child: HeldChild) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async listen(path: string, number: number): Promise<void> {
    await this.#command('listen', path, String(number))
  }

  async rings(): Promise<readonly Ring[]> {
    return (await this.#command('rings')).slice(0, -1).map(([, number, first = '', end = '', state]) => ({
      number: Number(number),
      first: BigInt(first),
      end: BigInt(end),
      isClosed: state === 'closed',
    }))
  }

  async attach(number: number, offset: bigint): Promise<{ readonly first: bigint; readonly stream: Duplex }> {
    const stream = await connectToHolder(this.#path)
    try {
      checkAlive(parseGreeting(words(await readLine(stream)), this.#path), this.#path)
      stream.write(`attach ${number} ${offset}\n`)
      const [, first = ''] = checked(words(await readLine(stream)))
      return { first: BigInt(first), stream }
    } catch (error) {
      stream.destroy()
      throw error
    }
  }

  async closeRing(number: number): Promise<void> {
    await this.#command('close', String(number))
  }

  async takeRing(number: number): Promise<void> {
    await this.#command('take', String(number))
  }

  async memory(path: string): Promise<void> {
    await this.#commandWithin(MEMORY_TIMEOUT_MS, ['memory', path])
  }

  async hasSealedMemory(): Promise<boolean> {
    // The descriptor that comes with the answer is dropped by the kernel.
    return await this.#command('give').then(
      () => true,
      (error) => {
        if (error instanceof AgentError && error.code === 'NOT_FOUND') return false
        throw error
      },
    )
  }

  async relay(
    { near, wire }: { readonly near: Fd; readonly wire: Fd },
    native: Pick<Native, 'sendFd'>,
  ): Promise<void> {
    const late = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
    // What was written before must not come after it.
    while (!this.#socket.destroyed && this.#socket.writableLength > 0) {
      const written = new Promise<void>((resolve) => this.#socket.write('', () => resolve()))
      await abortable(written, late).catch(() => {
        throw this.#unavailable(`relay: not read in ${ANSWER_TIMEOUT_MS} ms`)
      })
    }
    const fd = handleOf(this.#socket)?.fd ?? -1
    if (fd < 0) throw this.#hasEnded()
    // The kernel takes so short a line whole.
    checkErrno('send', 'the holder', native.sendFd(fd, Buffer.from('relay\n'), near, wire))
    await this.#answer('relay', { ms: ANSWER_TIMEOUT_MS, isGreeting: false })
  }

  async setLease(untilNs: bigint): Promise<void> {
    await this.#command('lease', String(untilNs))
  }

  async heldLease(): Promise<HeldLease | undefined> {
    const [, until, ended] = (await this.#command('lease')).at(-1) ?? []
    return until === undefined ? undefined : { untilNs: BigInt(until), hasEnded: ended === 'ended' }
  }

  async end(): Promise<void> {
    // A holder that hangs is killed, which ends its children just as well.
    await this.#command('end').catch(() => this.#killIfAlive())
    this.#socket.destroy()
    const late = AbortSignal.timeout(END_TIMEOUT_MS)
    while (this.#isAlive()) {
      if (late.aborted) throw new AgentError('DEADLINE_EXCEEDED', `holder ${this.pid}: still there`)
      await sleep(LOOK_MS)
    }
  }

  disconnect(): void {
    this.#isDisconnected = true
    this.#socket.destroy()
  }

  #command(...command: readonly string[]): Promise<readonly string[][]> {
    return this.#commandWithin(ANSWER_TIMEOUT_MS, command)
  }

  async #commandWithin(ms: number, command: readonly string[]): Promise<readonly string[][]> {
    const line = commandLine(command)
    const answer = this.#answer(command[0], { ms, isGreeting: false })
    this.#socket.write(line)
    return await answer
  }

  async #answer(
    what: string | undefined,
    { ms, isGreeting }: Pick<Waiter, 'isGreeting'> & { readonly ms: number },
  ): Promise<readonly string[][]> {
    if (this.#socket.destroyed) throw this.#hasEnded()
    const done = Promise.withResolvers<readonly string[][]>()
    this.#waiters.push({ isGreeting, lines: [], done })
    const timer = setTimeout(() => done.reject(this.#unavailable(`${what}: no answer in ${ms} ms`)), ms)
    try {
      return await done.promise
    } finally {
      clearTimeout(timer)
    }
  }

  #receive(text: string): void {
    const lines = `${this.#rest}${text}`.split('\n')
    this.#rest = lines.pop() ?? ''
    for (const line of lines) {
      let parsed: string[]
      try {
        parsed = words(line)
      } catch {
        // A holder sends no such line.
        this.#socket.destroy()
        return
      }
      this.#dispatch(parsed)
    }
  }

  #dispatch(line: string[]): void {
    if (line[0] === 'exit') {
      const child = parseChild(line.slice(1))
      for (const listener of this.#listeners) listener(child)
      return
    }
    const waiter = this.#waiters[0]
    if (waiter === undefined) return
    waiter.lines.push(line)
    if (!waiter.isGreeting && line[0] !== 'ok' && line[0] !== 'error') return
    this.#waiters.shift()
    try {
      if (!waiter.isGreeting) checked(line)
      waiter.done.resolve(waiter.lines)
    } catch (error) {
      waiter.done.reject(error)
    }
  }

  /** Resolves once the process is gone: the connection ends before the kernel has ended all in the namespace. */
  async #awaitEnd(): Promise<void> {
    for (const waiter of this.#waiters.splice(0)) waiter.done.reject(this.#hasEnded())
    if (this.#isDisconnected) return await new Promise(() => {})
    while (this.#isAlive()) await sleep(LOOK_MS)
  }

  #killIfAlive(): void {
    if (this.#isAlive()) process.kill(this.pid, 'SIGKILL')
  }

  #isAlive(): boolean {
    return isAlive(this.pid, this.#greeting.startTime)
  }

  #hasEnded(): AgentError {
    return this.#unavailable('the connection has ended')
  }

  /** One that has not greeted has no pid. */
  #unavailable(text: string): AgentError {
    return new AgentError('UNAVAILABLE', `holder${this.pid === 0 ? '' : ` ${this.pid}`}: ${text}`)
  }
}

/** Rejects with UNAVAILABLE and the errno of connect(2). */
export async function connectToHolder(path: string): Promise<Socket> {
  if (Buffer.byteLength(path) > LONGEST_PATH) {
    throw new AgentError('INVALID_ARGUMENT', `${path}: too long, want ${LONGEST_PATH} bytes at most`)
  }
  const socket = connect(path)
  const connected = Promise.withResolvers<void>()
  socket.once('connect', connected.resolve)
  socket.once('error', connected.reject)
  try {
    await connected.promise
  } catch (error) {
    const errno = errnoOf(error)
    const message = `connect to ${path}: ${errno}`
    throw new AgentError('UNAVAILABLE', message, errno === undefined ? {} : { errno })
  }
  // Every error also closes the socket.
  socket.on('error', () => {})
  return socket
}

/** The greeting must be of the process that it names, whose pid may have been another's. */
function checkAlive({ pid, startTime }: Greeting, path: string): void {
  if (!isAlive(pid, startTime))
    throw new AgentError('FAILED_PRECONDITION', `${path}: process ${pid} is not the holder`)
}

/** Reads up to a newline, and leaves what follows in the socket. */
async function readLine(socket: Socket): Promise<string> {
  const late = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
  let line = Buffer.alloc(0)
  for (;;) {
    const chunk: Buffer | null = socket.read()
    if (chunk === null) {
      if (socket.readableEnded || socket.destroyed) throw new AgentError('UNAVAILABLE', 'the holder hung up')
      await abortable(readable(socket), late).catch(() => {
        throw new AgentError('UNAVAILABLE', `the holder does not answer`)
      })
      continue
    }
    line = Buffer.concat([line, chunk])
    const end = line.indexOf('\n')
    if (end < 0) continue
    if (end + 1 < line.length) socket.unshift(line.subarray(end + 1))
    return line.toString('utf8', 0, end)
  }
}

function readable(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const wake = () => {
      for (const event of ['readable', 'end', 'close']) socket.off(event, wake)
      resolve()
    }
    for (const event of ['readable', 'end', 'close']) socket.on(event, wake)
  })
}

/** When a process started, in the kernel's ticks; empty when there is none. */
export function startTimeOf(pid: number): string {
  return procStatFields(readStat(pid))[19] ?? ''
}

/** Whether the process that started then has not ended. */
export function isAlive(pid: number, startTime: string): boolean {
  const fields = procStatFields(readStat(pid))
  return fields[19] === startTime && fields[0] !== 'Z' && fields[0] !== 'X'
}

/** Empty when there is no such process. */
function readStat(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return ''
  }
}
