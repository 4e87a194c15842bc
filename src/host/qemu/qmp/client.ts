import { writeSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { abortable } from '../../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import { checkErrno } from '../../../os/errors.ts'
import type { Native } from '../../../os/native.ts'
import { handleOf } from '../../../os/sockets/socket-handles.ts'
import type { QmpCommand } from '../parts.ts'
import type { QmpCommandName, QmpCommands } from './commands.ts'
import { encodeCommand, LineSplitter, parseMessage, type QmpEvent, type QmpMessage } from './message.ts'

type Waiter = { readonly command: string; readonly done: PromiseWithResolvers<unknown> }
type EventWaiter = {
  readonly matches: (event: QmpEvent) => boolean
  readonly done: PromiseWithResolvers<QmpEvent>
}

/** The longest line that QEMU may send. Its longest answers have some 300 kB. */
const LONGEST_LINE = 4 * 2 ** 20

/** A descriptor of this process, and what can send it. */
export interface PassedDescriptor {
  readonly native: Pick<Native, 'sendFd'>
  readonly fd: number
}

export interface QmpOptions {
  /** How long QEMU may take for a command. The session ends when that is over. Unlimited by default. */
  readonly commandMs?: number | undefined
  /** Called with the name of a command once that has taken half as long. */
  readonly onSlow?: ((command: string) => void) | undefined
  /** Called with each event, from the greeting on. */
  readonly onEvent?: (event: QmpEvent) => void
}

/**
 * A QMP session on one connection. Commands can overlap; the id matches each answer to its command. When the connection
 * ends, everything that still waits rejects with UNAVAILABLE.
 */
export class QmpClient {
  readonly #socket: Duplex
  readonly #waiting = new Map<number, Waiter>()
  readonly #eventWaiters = new Set<EventWaiter>()
  readonly #greeting = Promise.withResolvers<string>()
  readonly #ended = Promise.withResolvers<AgentError>()
  readonly #options: QmpOptions
  #nextId = 1
  #isOpen = false
  #closed: AgentError | undefined

  private constructor(socket: Duplex, options: QmpOptions) {
    this.#socket = socket
    this.#options = options
    // Handled here, because a connection that ends before the greeting would cause an unhandled rejection.
    this.#greeting.promise.catch(() => {})
    const lines = new LineSplitter()
    socket.on('data', (chunk: Buffer) => {
      for (const line of lines.push(chunk)) this.#receive(line)
      if (lines.restLength > LONGEST_LINE) this.#fail(`QMP: a line of more than ${LONGEST_LINE} bytes`)
    })
    socket.once('error', (error) => this.#end(`QMP: ${error.message}`))
    socket.once('close', () => this.#end('QMP: the connection was closed'))
  }

  /** Waits for QEMU's greeting and leaves negotiation mode. The client owns `socket` from then on. */
  static async open(socket: Duplex, signal: AbortSignal, options: QmpOptions = {}): Promise<QmpClient> {
    const client = new QmpClient(socket, options)
    try {
      await abortable(client.#greeting.promise, signal)
      await client.execute('qmp_capabilities', {}, signal)
      client.#isOpen = true
      return client
    } catch (error) {
      client.close()
      throw error
    }
  }

  /** Resolves with the reason when the session has ended; never rejects. */
  get ended(): Promise<AgentError> {
    return this.#ended.promise
  }

  /** Runs a command and returns its result. Rejects with INTERNAL `<command>: <QEMU's text>`. */
  async execute<N extends QmpCommandName>(
    name: N,
    args: QmpCommands[N]['args'],
    signal: AbortSignal,
  ): Promise<QmpCommands[N]['result']> {
    // The type of an answer comes from QEMU's schema and cannot be checked at run time.
    return (await this.command({ execute: name, arguments: { ...args } }, signal)) as QmpCommands[N]['result']
  }

  /** Runs a command that adds or removes a part of the machine. Rejects as {@link execute} does. */
  async command(command: QmpCommand, signal: AbortSignal): Promise<unknown> {
    return await this.#run(command, (text) => this.#write(text), signal)
  }

  /** Runs a command that takes the descriptor that is sent with it, which stays open here. */
  async pass(command: QmpCommand, { native, fd }: PassedDescriptor, signal: AbortSignal): Promise<unknown> {
    // What was written before must not come after it.
    await new Promise((resolve) => this.#socket.write('', resolve))
    const send = (text: string) => {
      const data = Buffer.from(text)
      const sent = checkErrno('send', 'QMP', native.sendFd(descriptorOf(this.#socket), data, fd))
      if (sent < data.length) this.#socket.write(data.subarray(sent))
    }
    return await this.#run(command, send, signal)
  }

  /**
   * Node destroys a socket whose write fails, with all that was not read of it: the last events of a QEMU that has just
   * ended would be lost. Reading tells of the end.
   */
  #write(text: string): void {
    const data = Buffer.from(text)
    let sent = 0
    const fd = this.#socket instanceof Socket ? handleOf(this.#socket)?.fd : undefined
    if (fd !== undefined && fd >= 0 && this.#socket.writableLength === 0) {
      try {
        sent = writeSync(fd, data)
      } catch (error) {
        if (errnoOf(error) === 'EPIPE') return
        if (errnoOf(error) !== 'EAGAIN') throw error
      }
    }
    if (sent < data.length) this.#socket.write(data.subarray(sent))
  }

  async #run(
    { execute: name, arguments: args }: QmpCommand,
    send: (text: string) => void,
    signal: AbortSignal,
  ): Promise<unknown> {
    if (this.#closed !== undefined) throw this.#closed
    const id = this.#nextId++
    const done = Promise.withResolvers<unknown>()
    this.#waiting.set(id, { command: name, done })
    const { commandMs, onSlow } = this.#options
    const late = () => this.#fail(`QEMU did not answer \`${name}\` within ${commandMs} ms`)
    const timer = commandMs === undefined ? undefined : setTimeout(late, commandMs)
    const slow = commandMs === undefined ? undefined : setTimeout(() => onSlow?.(name), commandMs / 2)
    try {
      send(encodeCommand(id, name, args))
      return await abortable(done.promise, signal)
    } finally {
      clearTimeout(timer)
      clearTimeout(slow)
      this.#waiting.delete(id)
    }
  }

  /**
   * The next event that `matches`. Call this before the command that leads to the event, or the event may be missed.
   */
  async event(matches: (event: QmpEvent) => boolean, signal: AbortSignal): Promise<QmpEvent> {
    if (this.#closed !== undefined) throw this.#closed
    const waiter = { matches, done: Promise.withResolvers<QmpEvent>() }
    this.#eventWaiters.add(waiter)
    try {
      return await abortable(waiter.done.promise, signal)
    } finally {
      this.#eventWaiters.delete(waiter)
    }
  }

  get isClosed(): boolean {
    return this.#closed !== undefined
  }

  close(): void {
    this.#fail('QMP: the client was closed')
  }

  #fail(reason: string): void {
    this.#end(reason)
    this.#socket.destroy()
  }

  #receive(line: string): void {
    try {
      this.#dispatch(parseMessage(line))
    } catch (error) {
      this.#fail(messageOf(error))
    }
  }

  #dispatch(message: QmpMessage): void {
    switch (message.kind) {
      case 'greeting':
        this.#greeting.resolve(message.version)
        return
      case 'event':
        for (const waiter of this.#eventWaiters) {
          if (waiter.matches(message.event)) waiter.done.resolve(message.event)
        }
        this.#options.onEvent?.(message.event)
        return
      case 'return':
        this.#waiting.get(message.id)?.done.resolve(message.value)
        return
      case 'error': {
        // A client that died in the middle of a command may have left the rest to this one.
        if (message.id === undefined && !this.#isOpen) return
        if (message.id === undefined) throw new AgentError('INTERNAL', `QMP: ${message.text}`)
        const waiter = this.#waiting.get(message.id)
        waiter?.done.reject(new AgentError('INTERNAL', `${waiter.command}: ${message.text}`))
        return
      }
      default:
        message satisfies never
    }
  }

  #end(reason: string): void {
    if (this.#closed !== undefined) return
    const error = new AgentError('UNAVAILABLE', reason)
    this.#closed = error
    this.#greeting.reject(error)
    for (const waiter of this.#waiting.values()) waiter.done.reject(error)
    for (const waiter of this.#eventWaiters) waiter.done.reject(error)
    this.#ended.resolve(error)
  }
}

function descriptorOf(socket: Duplex): number {
  const handle = socket instanceof Socket ? handleOf(socket) : undefined
  if (handle !== undefined && handle.fd >= 0) return handle.fd
  throw new AgentError('UNAVAILABLE', 'QMP: the connection was closed')
}
