import { writeSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { abortable } from '../../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import { checkErrno } from '../../../os/errors.ts'
import type { Native } from '../../../os/native.ts'
import { handleOf } from '../../../os/sockets/socket-handles.ts'
import type { QmpCommand } from '../parts.ts'
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
  async pass(command: QmpCommand, { native, fd }: PassedDescriptor, signal: AbortSignal): Promise<void> {
    // What was written before must not come after it.
    await new Promise((resolve) => this.#socket.write('', resolve))
    const send = (text: string) => {
      const data = Buffer.from(text)
      const sent = checkErrno('send', 'QMP', native.sendFd(descriptorOf(this.#socket), data, fd))
      if (sent < data.length) this.#socket.write(data.subarray(sent))
    }
    await this.#run(command, send, signal)
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

interface QmpCommands {
  /** Leaves negotiation mode; sent by the client itself. */
  qmp_capabilities: { args: Record<never, never>; result: Record<never, never> }
  quit: { args: Record<never, never>; result: Record<never, never> }
  system_powerdown: { args: Record<never, never>; result: Record<never, never> }
  system_reset: { args: Record<never, never>; result: Record<never, never> }
  cont: { args: Record<never, never>; result: Record<never, never> }
  stop: { args: Record<never, never>; result: Record<never, never> }
  'query-kvm': { args: Record<never, never>; result: { readonly enabled: boolean } }
  'query-status': {
    args: Record<never, never>
    result: { readonly status: string; readonly running: boolean }
  }
  'query-cpus-fast': {
    args: Record<never, never>
    /** A thread's id is that in QEMU's PID namespace. */
    result: readonly { readonly 'cpu-index': number; readonly 'thread-id': number }[]
  }
  'blockdev-add': { args: BlockdevOptions; result: Record<never, never> }
  'blockdev-reopen': { args: { readonly options: readonly [BlockdevOptions] }; result: Record<never, never> }
  'query-named-block-nodes': { args: { readonly flat: true }; result: readonly BlockNode[] }
  /** Lists the descriptors that were given to QEMU; `opaque` is the path of the file. */
  'query-fdsets': { args: Record<never, never>; result: readonly FdSet[] }
  'remove-fd': { args: { readonly 'fdset-id': number }; result: Record<never, never> }
  /** All actions happen at one moment, or none. */
  transaction: {
    args: {
      readonly actions: readonly {
        readonly type: 'blockdev-snapshot'
        readonly data: { readonly node: string; readonly overlay: string }
      }[]
    }
    result: Record<never, never>
  }
  /** Writes what a node has into one below it. Without `top-node` the topmost, which takes `job-complete` in the end. */
  'block-commit': { args: CommitOptions; result: Record<never, never> }
  'query-jobs': { args: Record<never, never>; result: readonly Job[] }
  'job-complete': { args: { readonly id: string }; result: Record<never, never> }
  'job-cancel': { args: { readonly id: string }; result: Record<never, never> }
  'job-dismiss': { args: { readonly id: string }; result: Record<never, never> }
  'query-block-jobs': { args: Record<never, never>; result: readonly BlockJob[] }
  /** Tells which permissions each user of a block node has; QEMU promises no stable form. */
  'x-debug-query-block-graph': { args: Record<never, never>; result: BlockGraph }
  /** Lists the devices that have an id: `path` is `/machine/peripheral`. */
  'qom-list': { args: { readonly path: string }; result: readonly { readonly name: string }[] }
  /** The time of the clock that the guest reads and sets, as tm(3type) has it. */
  'qom-get': {
    args: { readonly path: '/machine'; readonly property: 'rtc-time' }
    result: Readonly<Record<`tm_${'year' | 'mon' | 'mday' | 'hour' | 'min' | 'sec'}`, number>>
  }
  'blockdev-del': { args: { readonly 'node-name': string }; result: Record<never, never> }
  /** Enlarges a disk and the file below it; `size` is in bytes. */
  block_resize: {
    args: { readonly 'node-name': string; readonly size: number }
    result: Record<never, never>
  }
  /** `value` is how many bytes of memory the guest is to keep. QEMU remembers it, also for the next boot. */
  balloon: { args: { readonly value: number }; result: Record<never, never> }
  /** Takes no effect without `password=on` of VNC, or with `disable-ticketing=on` of spice. */
  set_password: {
    args: { readonly protocol: ScreenProtocol; readonly password: string }
    result: Record<never, never>
  }
  /** `time` is `never` or seconds since 1970. */
  expire_password: {
    args: { readonly protocol: ScreenProtocol; readonly time: string }
    result: Record<never, never>
  }
  netdev_add: { args: NetdevOptions; result: Record<never, never> }
  netdev_del: { args: { readonly id: string }; result: Record<never, never> }
  /** Plugs a device in; `bus` is a root port or bridge of machine q35. Other properties belong to the driver. */
  device_add: { args: DeviceOptions; result: Record<never, never> }
  /** Asks the guest to release a device; DEVICE_DELETED reports when it has done so. */
  device_del: { args: { readonly id: string }; result: Record<never, never> }
  /** Lists every CPU that the machine has or has room for. */
  'query-hotpluggable-cpus': { args: Record<never, never>; result: readonly HotpluggableCpu[] }
  'object-add': { args: MemoryBackendOptions; result: Record<never, never> }
  'object-del': { args: { readonly id: string }; result: Record<never, never> }
}

type QmpCommandName = keyof QmpCommands

type ScreenProtocol = 'vnc' | 'spice'

export interface FdSet {
  readonly 'fdset-id': number
  readonly fds: readonly { readonly opaque?: string }[]
}

export interface BlockNode {
  readonly 'node-name': string
  /** The name of the file, of the protocol node and of the format node above it. */
  readonly file: string
  readonly ro: boolean
  readonly image: { readonly 'virtual-size': number }
}

interface CommitOptions {
  readonly 'job-id': string
  /** The topmost node. */
  readonly device: string
  readonly 'top-node'?: string
  readonly 'base-node': string
  /** The name of the node below that an image then has in it. */
  readonly 'backing-file'?: string
  readonly 'auto-dismiss': false
}

export interface Job {
  readonly id: string
  readonly status: string
  readonly error?: string
}

interface BlockJob {
  readonly device: string
  readonly type: string
}

export interface BlockGraph {
  readonly nodes: readonly { readonly id: number; readonly name: string }[]
  readonly edges: readonly {
    readonly name: string
    readonly parent: number
    readonly child: number
    readonly perm: readonly string[]
  }[]
}

/** As parts of a machine have them. */
type BlockdevOptions = Readonly<Record<string, unknown>>

/** An existing tap interface, which no script may change. */
interface NetdevOptions {
  readonly type: 'tap'
  readonly id: string
  readonly ifname: string
  readonly script: 'no'
  readonly downscript: 'no'
}

interface DeviceOptions {
  readonly driver: string
  readonly id: string
  readonly bus?: string
  readonly [property: string]: string | number | boolean | undefined
}

/** A place for a CPU; when a CPU is in it, it has a `qom-path`. */
interface HotpluggableCpu {
  /** The driver for `device_add`. */
  readonly type: string
  readonly props: Readonly<Record<string, number>>
  readonly 'qom-path'?: string
}

/** Memory of this host for the guest, shared so that a vhost-user daemon can use it too. */
interface MemoryBackendOptions {
  readonly 'qom-type': 'memory-backend-memfd'
  readonly id: string
  readonly size: number
  readonly share: true
}
