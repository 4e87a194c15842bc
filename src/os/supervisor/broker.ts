import { withTimeout } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Clock } from '../clock.ts'
import { checkErrno, errnoName, kernelError } from '../errors.ts'
import type { Native, ReceivedMessage } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import {
  type BrokerLimits,
  type BrokerMessage,
  type BrokerPeer,
  decodeBrokerMessage,
  encodeClose,
  encodeConfirm,
  encodeHello,
  encodePong,
  encodeStop,
  LONGEST_MESSAGE_BYTES,
  type RequestState,
} from './broker-messages.ts'

export interface BrokerConnection {
  readonly framing: 'ttrpc' | 'grpc'
  readonly peer: BrokerPeer
  /** The client's own socket for gRPC; for ttRPC the data socket, with envelopes. The receiver owns it. */
  readonly fd: Fd
  readonly firstBytes: Buffer
  /** ttRPC only: one sendmsg(2) on the data socket. Returns the bytes sent, or less than 0. */
  sendNow(bytes: Buffer, fd?: Fd): number
  /** ttRPC only: the files of long requests. */
  readonly files: {
    /** Takes the file of a request, which the broker has sent ahead. The caller closes it. */
    take(number: bigint): Fd | undefined
    read(fd: Fd, offset: number, bytes: number): Buffer
    close(fd: Fd): void
    /** To be called at the end of the connection: closes the files that were not taken, or come later. */
    forget(): void
  }
  /** ttRPC only: the broker closes the client after it has written what the data socket holds. */
  close(): void
}

export type Settled = 'written' | 'dropped'

/** The connection broker (docs/broker.md) keeps the clients' connections when the agent dies. */
export interface Broker {
  /** Rejects when the broker is gone or breaks its protocol. */
  readonly failed: Promise<never>
  /** States of the requests of previous agents, by number. A missing one was confirmed, or its client is gone. */
  readonly earlierRequests: ReadonlyMap<bigint, RequestState>
  /** `tell` is called when such a request is settled, unless this agent sends a successful answer. To be called once. */
  onSettled(tell: (number: bigint, outcome: Settled) => void): void
  /**
   * Sends the listening socket and the limits. Resolves when the broker has told the states of all earlier requests. To be
   * called once. Throws DEADLINE_EXCEEDED after 10 s.
   */
  serve(
    listening: Fd,
    limits: BrokerLimits,
    onConnection: (connection: BrokerConnection) => void,
  ): Promise<void>
  /** The broker forgets the answer, because the agent has acted on its delivery. */
  confirm(number: bigint): void
  /** Takes the outcome of a previous agent's answer from a data socket. */
  settled(number: bigint, written: boolean): void
  /** To be called when this agent answers a request with a failure. Drops what the previous agent took for it. */
  refused(number: bigint): void
  /** The broker has reported no outcome for long, so vminit checks it. */
  late(): void
  stopAccepting(): void
  /** Rejects `failed`, because a data socket broke the protocol. */
  fail(reason: string): void
}

/** How long the agent waits for READY. */
const READY_MS = 10_000

export function connectBroker(parts: {
  readonly fd: Fd
  readonly native: Native
  readonly streams: Streams
  readonly clock: Clock
  /** Makes vminit check that the broker is alive. */
  readonly check: () => void
}): Broker {
  checkErrno('unblock', `broker fd ${parts.fd}`, parts.native.setNonBlocking(parts.fd, true))
  return new BrokerControl(parts)
}

type Parts = Parameters<typeof connectBroker>[0]

class BrokerControl implements Broker {
  readonly failed: Promise<never>
  readonly #parts: Parts
  readonly #failure = Promise.withResolvers<never>()
  readonly #ready = Promise.withResolvers<void>()
  #isReady = false
  readonly earlierRequests = new Map<bigint, RequestState>()
  #tell: (number: bigint, outcome: Settled) => void = () => {}
  #onConnection: (connection: BrokerConnection) => void = () => {}
  readonly #unsent: Buffer[] = []
  /** By open connection, and the number of the request. */
  readonly #files = new Map<bigint, Map<bigint, Fd>>()

  constructor(parts: Parts) {
    this.#parts = parts
    this.failed = this.#failure.promise
    // It may reject before anyone waits.
    this.failed.catch(() => {})
  }

  async serve(
    listening: Fd,
    limits: BrokerLimits,
    onConnection: (connection: BrokerConnection) => void,
  ): Promise<void> {
    const { native, fd, clock } = this.#parts
    this.#onConnection = onConnection
    checkErrno('send', 'the listening socket', native.sendMessage(fd, encodeHello(limits), listening))
    void this.#receive()
    const late = () => new AgentError('DEADLINE_EXCEEDED', `broker: not ready after ${READY_MS} ms`)
    await withTimeout(clock, READY_MS, Promise.race([this.#ready.promise, this.failed]), late)
  }

  confirm(number: bigint): void {
    this.#send(encodeConfirm(number))
  }

  settled(number: bigint, written: boolean): void {
    this.#learn(number, written ? 'written' : 'dropped')
  }

  refused(number: bigint): void {
    if (this.earlierRequests.get(number) === 'open') this.#learn(number, 'dropped')
  }

  onSettled(tell: (number: bigint, outcome: Settled) => void): void {
    this.#tell = tell
  }

  late(): void {
    this.#parts.check()
  }

  stopAccepting(): void {
    this.#send(encodeStop())
  }

  fail(reason: string): void {
    this.#failure.reject(new AgentError('INTERNAL', `broker: ${reason}`))
  }

  /** Receives until a failure. Never rejects. */
  async #receive(): Promise<void> {
    const { streams, fd } = this.#parts
    while (this.#receiveAll()) {
      try {
        await streams.readable(fd)
      } catch (error) {
        this.fail(messageOf(error))
      }
    }
  }

  /** Handles what has arrived. Returns false after a failure. */
  #receiveAll(): boolean {
    const { native, fd } = this.#parts
    try {
      for (;;) {
        const message = native.recvMessage(fd, LONGEST_MESSAGE_BYTES)
        if (typeof message !== 'number') this.#accept(message)
        else if (errnoName(-message) === 'EAGAIN') return true
        else throw kernelError('receive', `fd ${fd}`, errnoName(-message))
      }
    } catch (error) {
      this.fail(messageOf(error))
      return false
    }
  }

  #filesOf(connection: bigint): BrokerConnection['files'] {
    const { streams } = this.#parts
    const files = new Map<bigint, Fd>()
    this.#files.set(connection, files)
    return {
      take: (number) => {
        // It was sent before the envelope that speaks of it, but over another socket.
        if (!files.has(number)) this.#receiveAll()
        const fd = files.get(number)
        files.delete(number)
        return fd
      },
      read: (fd, offset, bytes) => streams.readAt(fd, offset, bytes),
      close: (fd) => streams.close(fd),
      forget: () => {
        this.#files.delete(connection)
        for (const fd of files.values()) streams.close(fd)
        files.clear()
      },
    }
  }

  /** Closes the descriptors before it throws. */
  #accept({ data, fds }: ReceivedMessage): void {
    try {
      if (data.length === 0) throw new Error('it is gone')
      const message = decodeBrokerMessage(data)
      if (fds.length !== (message.kind === 'connection' || message.kind === 'file' ? 1 : 0)) {
        throw new RangeError(`message ${message.kind} with ${fds.length} descriptors`)
      }
      this.#handle(message, fds[0] ?? -1)
    } catch (error) {
      for (const fd of fds) this.#parts.native.close(fd)
      throw error
    }
  }

  /** `fd` is -1 unless it is a connection or a file. */
  #handle(message: BrokerMessage, fd: Fd): void {
    switch (message.kind) {
      case 'connection': {
        const { id, framing, peer, firstBytes } = message
        const { native } = this.#parts
        const sendNow = (bytes: Buffer, passed?: Fd) => native.sendMessage(fd, bytes, passed)
        const close = () => this.#send(encodeClose(id))
        const files = this.#filesOf(id)
        this.#onConnection({ framing, peer, fd, firstBytes, sendNow, files, close })
        return
      }
      case 'file': {
        const files = this.#files.get(message.connection)
        // The agent may have ended the connection meanwhile.
        if (files === undefined) this.#parts.streams.close(fd)
        else files.set(message.number, fd)
        return
      }
      case 'request state':
        for (const [number, state] of message.states) this.#learn(number, state)
        return
      case 'ready':
        this.#isReady = true
        this.#ready.resolve()
        return
      case 'ping':
        this.#send(encodePong(message.number))
        return
      default:
        message satisfies never
    }
  }

  #learn(number: bigint, state: RequestState): void {
    // This agent's own answer: the agent closed that data socket, and so already counts the answer as dropped.
    if (this.#isReady && !this.earlierRequests.has(number)) {
      this.confirm(number)
      return
    }
    this.earlierRequests.set(number, state)
    if (state === 'written' || state === 'dropped') this.#tell(number, state)
  }

  #send(message: Buffer): void {
    this.#unsent.push(message)
    if (this.#unsent.length === 1) void this.#flush()
  }

  /** Never rejects. */
  async #flush(): Promise<void> {
    const { native, streams, fd } = this.#parts
    try {
      for (let [next] = this.#unsent; next !== undefined; [next] = this.#unsent) {
        const result = native.sendMessage(fd, next)
        if (result < 0 && errnoName(-result) === 'EAGAIN') {
          await streams.writable(fd)
          continue
        }
        checkErrno('send', `fd ${fd}`, result)
        this.#unsent.shift()
      }
    } catch (error) {
      this.fail(messageOf(error))
    }
  }
}
