import type { Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import type { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { Inbox, sent } from './inbox.ts'
import { MessageSocket } from './message-socket.ts'
import {
  Control,
  type ControlMessage,
  cutter,
  Envelope,
  type EnvelopeRecord,
  encodeControl,
  encodeEnvelope,
  encodeHello,
  envelopeSize,
  type Hello,
  KEEP,
  type Peer,
  parseControl,
  parseEnvelope,
  parsePeer,
  parseStates,
} from './records.ts'

interface Parts {
  readonly native: Native
  readonly handles: SocketHandles
}

export interface Start {
  readonly states: ReadonlyMap<bigint, number>
  readonly connections: readonly PlayedConnection[]
}

export class PlayedAgent {
  readonly pid: number
  answersPings = true
  pings = 0
  /** Messages other than CONNECTION and PING. */
  readonly messages = new Inbox<ControlMessage>('messages for the agent')
  readonly connections = new Inbox<PlayedConnection>('connections for the agent')
  readonly #parts: Parts
  readonly #control: MessageSocket
  readonly #all: PlayedConnection[] = []
  /** Of requests, by number. */
  readonly #files = new Map<bigint, Fd>()
  #isDead = false

  constructor(parts: Parts, control: Fd, pid: number) {
    this.pid = pid
    this.#parts = parts
    this.#control = new MessageSocket(parts.native, control)
    void this.#read()
  }

  sayHello(hello: Hello, listener?: Fd): void {
    this.#control.send(encodeHello(hello), listener)
  }

  send(message: Partial<ControlMessage> & { readonly kind: number }): void {
    this.#control.send(encodeControl(message))
  }

  sendRaw(data: Buffer, passed?: Fd): void {
    this.#control.send(data, passed)
  }

  async start(): Promise<Start> {
    const states = new Map<bigint, number>()
    for (;;) {
      const message = await this.messages.next()
      if (message.kind === Control.ready) break
      for (const [number, state] of parseStates(message)) states.set(number, state)
    }
    return { states, connections: this.connections.takeAll() }
  }

  /** Answers every request of every connection with `answer`, until the agent is disconnected or dies. */
  async serve(answer: Buffer): Promise<void> {
    for await (const connection of this.connections) void connection.serve(answer)
  }

  async #frameOf({ number, fileBytes }: EnvelopeRecord): Promise<Buffer> {
    const file = await this.fileOf(number)
    return unwrap('read', 'the file of a request', this.#parts.native.readAt(file, 0, fileBytes))
  }

  /** The file has come before the envelope, but its message may not be read yet. */
  async fileOf(number: bigint): Promise<Fd> {
    let file = this.#files.get(number)
    for (; file === undefined; file = this.#files.get(number)) await setImmediate()
    return file
  }

  /** Closes all descriptors, as the kernel does when a process dies. */
  die(): void {
    this.#isDead = true
    this.#control.close()
    for (const connection of this.#all) connection.close()
    for (const file of this.#files.values()) this.#parts.native.close(file)
  }

  /** Resolves when the broker has closed the control socket. */
  async cutOff(): Promise<void> {
    await this.messages.rest()
  }

  async #read(): Promise<void> {
    try {
      for await (const message of this.#control.inbox) this.#take(message)
    } catch {
      // The broker has closed its end before a PONG.
    }
    this.messages.end()
    this.connections.end()
  }

  #take({ data, fds }: { readonly data: Buffer; readonly fds: readonly Fd[] }): void {
    const message = parseControl(data)
    const [fd] = fds
    if (message.kind === Control.ping) {
      this.pings += 1
      if (this.answersPings) this.send({ kind: Control.pong, a: message.a })
    } else if (message.kind === Control.connection && fd !== undefined) {
      const connection = new PlayedConnection(
        { ...this.#parts, read: (request) => this.#frameOf(request) },
        message,
        fd,
      )
      this.#all.push(connection)
      if (this.#isDead) connection.close()
      this.connections.push(connection)
    } else if (message.kind === Control.file && fd !== undefined) {
      this.#files.set(message.a, fd)
    } else {
      this.messages.push(message)
    }
  }
}

interface ConnectionParts extends Parts {
  /** Reads the frame of a request from its file. */
  read(request: EnvelopeRecord): Promise<Buffer>
}

/** An agent's view of a connection. It reads nothing before `open`. */
export class PlayedConnection {
  readonly id: bigint
  readonly isGrpc: boolean
  readonly peer: Peer
  readonly envelopes = new Inbox<EnvelopeRecord>('envelopes for the agent')
  readonly #parts: ConnectionParts
  readonly #fd: Fd
  #socket: Socket | undefined
  #isClosed = false

  constructor(parts: ConnectionParts, message: ControlMessage, fd: Fd) {
    this.id = message.a
    this.isGrpc = message.flags === 1
    this.peer = parsePeer(message.payload)
    this.#parts = parts
    this.#fd = fd
  }

  /** Returns the socket. Reads envelopes from it, unless it is a gRPC client's own. */
  open(): Socket {
    if (this.#socket !== undefined) return this.#socket
    // Its descriptor's number may belong to another file by now.
    if (this.#isClosed) throw new Error('the connection is closed')
    const socket = this.#parts.handles.socket(this.#fd)
    this.#socket = socket
    socket.on('error', () => {})
    if (this.isGrpc) return socket
    socket.on(
      'data',
      cutter(envelopeSize, (record) => this.envelopes.push(parseEnvelope(record))),
    )
    socket.on('end', () => this.envelopes.end())
    socket.on('close', () => this.envelopes.end())
    return socket
  }

  async next(kind: number): Promise<EnvelopeRecord> {
    this.open()
    const envelope = await this.envelopes.next()
    if (envelope.kind !== kind) throw new Error(`envelope of kind ${envelope.kind}, want ${kind}`)
    return envelope.fileBytes === 0 ? envelope : { ...envelope, frame: await this.#parts.read(envelope) }
  }

  request(): Promise<EnvelopeRecord> {
    return this.next(Envelope.request)
  }

  answer(number: bigint, frame: Buffer): void {
    this.open().write(encodeEnvelope(Envelope.answer, number, frame))
  }

  /** Answers and asks the broker to report the outcome. */
  answerKept(number: bigint, frame: Buffer): void {
    this.open().write(encodeEnvelope(Envelope.answer, number, frame, KEEP))
  }

  /** Resolves when the kernel has taken all bytes. */
  send(bytes: Buffer): Promise<void> {
    return sent('bytes of the agent', this.open(), bytes)
  }

  sendWith(bytes: Buffer, fd: Fd): void {
    this.open()
    this.#parts.native.sendMessage(this.#fd, bytes, fd)
  }

  /** Answers every request until the connection ends, then closes this end, as agents do. */
  async serve(answer: Buffer): Promise<void> {
    if (this.#isClosed) return
    const socket = this.open()
    if (this.isGrpc) socket.on('end', () => this.close()).resume()
    for await (const { number } of this.envelopes) this.answer(number, answer)
    this.close()
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    if (this.#socket === undefined) this.#parts.native.close(this.#fd)
    else this.#socket.destroy()
  }
}
