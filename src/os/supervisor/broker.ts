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

/** A connection that the broker has accepted. */
export interface BrokerConnection {
  readonly framing: 'ttrpc' | 'grpc'
  readonly peer: BrokerPeer
  /**
   * With gRPC the client's own socket, which the broker has forgotten; with ttRPC the data socket, on which its frames
   * travel in envelopes. The receiver of the connection owns it.
   */
  readonly fd: Fd
  /** What has been read from a gRPC connection. */
  readonly firstBytes: Buffer
  /**
   * With ttRPC: one sendmsg(2) on the data socket, with a descriptor or none. Returns how many bytes the kernel has taken,
   * or less than 0.
   */
  sendNow(bytes: Buffer, fd?: Fd): number
  /** With ttRPC: has the broker close the client, once everything was written to it that the data socket holds. */
  close(): void
}

/** What became of an answer. */
export type Settled = 'written' | 'dropped'

/** The connection broker (docs/broker.md): it has the clients' connections, and keeps them when the agent dies. */
export interface Broker {
  /** Rejects when the broker is gone, or has sent what its protocol does not allow. */
  readonly failed: Promise<never>
  /**
   * What became of the requests that previous agents got, by their numbers. Changes when one is settled. A number that
   * is not here was confirmed, or its client is gone.
   */
  readonly earlierRequests: ReadonlyMap<bigint, RequestState>
  /** Has the broker tell when one of these is settled, but for those that this agent answers. To be called once. */
  onSettled(tell: (number: bigint, outcome: Settled) => void): void
  /**
   * Gives the broker the listening socket and takes its connections from then on. Resolves once everything that it has of
   * the time before this agent has come. To be called once. Throws DEADLINE_EXCEEDED when the broker does not answer.
   */
  serve(
    listening: Fd,
    limits: BrokerLimits,
    onConnection: (connection: BrokerConnection) => void,
  ): Promise<void>
  /** The agent has acted on the delivery of this answer: the broker forgets it. */
  confirm(number: bigint): void
  /** A data socket has told the delivery of an answer of an earlier agent. */
  settled(number: bigint, written: boolean): void
  /** This agent answers the request with a failure. What the previous agent took for it is dropped. */
  refused(number: bigint): void
  /** The broker has told nothing of an answer for long. */
  late(): void
  /** Accepts no more connections. */
  stopAccepting(): void
  /** What came over a data socket cannot be trusted: `failed` rejects. */
  fail(reason: string): void
}

/** How long the broker may take to send what it has of the time before. */
const READY_MS = 10_000

/** {@link Broker} at the inherited control socket `fd`. */
export function connectBroker(parts: {
  readonly fd: Fd
  readonly native: Native
  readonly streams: Streams
  readonly clock: Clock
  /** Has vminit see whether the broker lives. */
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
  /** Messages that wait for room in the socket. */
  readonly #unsent: Buffer[] = []

  constructor(parts: Parts) {
    this.#parts = parts
    this.failed = this.#failure.promise
    // It may fail before anyone waits.
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

  /** Receives until the broker is gone or has sent something wrong. Never rejects. */
  async #receive(): Promise<void> {
    const { native, streams, fd } = this.#parts
    try {
      for (;;) {
        const message = native.recvMessage(fd, LONGEST_MESSAGE_BYTES)
        if (typeof message !== 'number') this.#accept(message)
        else if (errnoName(-message) === 'EAGAIN') await streams.readable(fd)
        else throw kernelError('receive', `fd ${fd}`, errnoName(-message))
      }
    } catch (error) {
      this.fail(messageOf(error))
    }
  }

  /** Throws when the broker is gone, or the message is wrong; its descriptors are then closed. */
  #accept({ data, fds }: ReceivedMessage): void {
    try {
      if (data.length === 0) throw new Error('it is gone')
      const message = decodeBrokerMessage(data)
      if (fds.length !== (message.kind === 'connection' ? 1 : 0)) {
        throw new RangeError(`message ${message.kind} with ${fds.length} descriptors`)
      }
      this.#handle(message, fds[0] ?? -1)
    } catch (error) {
      for (const fd of fds) this.#parts.native.close(fd)
      throw error
    }
  }

  /** `fd` comes with a connection. */
  #handle(message: BrokerMessage, fd: Fd): void {
    switch (message.kind) {
      case 'connection': {
        const { id, framing, peer, firstBytes } = message
        const { native } = this.#parts
        const sendNow = (bytes: Buffer, passed?: Fd) => native.sendMessage(fd, bytes, passed)
        const close = () => this.#send(encodeClose(id))
        this.#onConnection({ framing, peer, fd, firstBytes, sendNow, close })
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
    // An answer of this agent, whose data socket it has ended itself: it counts as dropped.
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

  /** Sends what waits, in order. Never rejects. */
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
