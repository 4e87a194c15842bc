import { AgentError } from '../base/errors.ts'
import { type InTurn, Turns } from './turns.ts'

const MIB = 1024 * 1024

/**
 * Every limit of the API in one table (docs/reference/limits.md). A limit refuses what is new with RESOURCE_EXHAUSTED, and names
 * itself in the text; what has been taken is finished.
 */
export const LIMITS = {
  /** Bytes of an encoded message, both ways and in both framings. */
  messageBytes: 4 * MIB,
  /**
   * Elements of one request: fields that are set, items of lists, entries of maps, in it and in all messages inside it. A
   * message of nothing takes two bytes in a request and some hundred once it is decoded, so the bytes of a request do not
   * bound the memory that it takes; the elements do. The longest known requests have some thousand.
   */
  elements: 65_536,
  /** What one connection may have. A host polls three streams a process, and copies files in pieces of a megabyte. */
  connection: {
    openCalls: 1024,
    /** The same for gRPC, whose clients hold back what is more. A call that has just begun costs more there. */
    openStreams: 256,
    /** More of them for calls that have all of the reserves. */
    reservedCalls: 64,
    /** Bytes of the encoded requests of its open calls (ttRPC). */
    requestBytes: 32 * MIB,
    /** Bytes of answers that wait for its peer to read; beyond them it is closed (ttRPC). */
    answerBytes: 64 * MIB,
    /** Requests that are served before other connections have their turn. */
    requestsAtOnce: 32,
    /** Milliseconds for the preface of HTTP/2, and for each frame header of ttRPC, from its first byte. */
    headerMs: 10_000,
    /** Streams of server reflection, of the health service's Watch and of StreamEvents. */
    streams: 8,
  },
  /** What all connections may have together. `reserve` is kept for calls with a {@link Share} of it. */
  total: {
    /** Bytes of incomplete messages, of the requests of open calls, and of answers that wait to be read. */
    bytes: { limit: 96 * MIB, reserve: 8 * MIB },
    /** Calls that are open. */
    calls: { limit: 4096, reserve: 512 },
    /** Elements of the requests of open calls. One takes up to 200 bytes of the heap. */
    elements: { limit: 4 * 65_536, reserve: 8192 },
    /** Streams of server reflection, of the health service's Watch and of StreamEvents. */
    streams: { limit: 64, reserve: 0 },
  },
  /** Bytes of one message of a stream. */
  streamMessageBytes: 4096,
  /** Calls that do work at the same time; those that only wait for a process do not count, and the rest waits its turn. */
  workingCalls: 64,
  /** Calls of gRPC that begin, or end with their connection, in one turn of the event loop. */
  callsAtOnce: 32,
  /** Connections. One more closes the oldest without a valid call, and is refused if there is none. */
  connections: 1024,
  /** Connections that have sent no valid call yet: spare ones of a host. One more closes the oldest of them. */
  connectionsWithoutCall: 256,
} as const

/** A limit of all connections together. */
export type TotalName = keyof typeof LIMITS.total

/**
 * What a call may use of the reserves: nothing, half of them, or all. What tells a host that the guest lives, and what ends
 * things, has all; a wait for an exit, of which there is one a process, has half.
 */
export type Share = 'ordinary' | 'waiting' | 'reserved'

/** A limit and its use, as the log and the metrics show them. */
interface LimitUse {
  readonly name: string
  readonly limit: number
  readonly used: number
}

/** The parts of {@link LIMITS} that are counted over all connections. */
export interface TotalLimits {
  readonly total: Readonly<Record<TotalName, { readonly limit: number; readonly reserve: number }>>
  readonly workingCalls: number
  readonly connections: number
  readonly connectionsWithoutCall: number
}

/** What all connections together have taken of the limits. */
export class Totals {
  readonly #limits: TotalLimits
  readonly #used: Record<TotalName, number> = { bytes: 0, calls: 0, elements: 0, streams: 0 }
  /** In the order in which they came. */
  readonly #connections = new Set<ConnectionTotals>()
  /** Those of them without a valid call. */
  readonly #withoutCall = new Set<ConnectionTotals>()
  readonly #turns = new Turns(LIMITS.callsAtOnce)
  #working = 0
  /** In the order in which they came. */
  readonly #waitingToWork = new Set<() => void>()

  constructor(limits: TotalLimits = LIMITS) {
    this.#limits = limits
  }

  /** Takes `amount` of a limit; the caller gives it back. Returns the reason when there is not so much left. */
  take(name: TotalName, amount: number, share: Share): string | undefined {
    if (!this.#hasRoom(name, amount, share) && (name !== 'bytes' || !this.#freeBytes(amount, share))) {
      const { limit } = this.#limits.total[name]
      return `${LABELS[name]} of all connections: ${this.#used[name]} of at most ${limit} in use`
    }
    this.#used[name] += amount
    return undefined
  }

  /** Takes `amount` of a limit in any case. */
  takeAnyway(name: TotalName, amount: number): void {
    this.#used[name] += amount
  }

  give(name: TotalName, amount: number): void {
    this.#used[name] -= amount
  }

  /**
   * Waits until the call may work. Resolves with the function that ends its work, even if `signal` has just fired. Throws
   * its reason when it fires during the wait.
   */
  async beginWork(signal: AbortSignal): Promise<() => void> {
    const end = this.tryToWork()
    if (end !== undefined) return end
    await this.#turn(signal)
    return () => this.#endWork()
  }

  /** The function that ends the call's work, if the call may work at once. */
  tryToWork(): (() => void) | undefined {
    if (this.#working >= this.#limits.workingCalls) return undefined
    this.#working += 1
    return () => this.#endWork()
  }

  #endWork(): void {
    const [next] = this.#waitingToWork
    if (next === undefined) {
      this.#working -= 1
      return
    }
    this.#waitingToWork.delete(next)
    // Other callers have their turn, even if no work ever waits for anything.
    setImmediate(next)
  }

  /** Adds a connection; `close` closes it. Returns undefined, and closes nothing, when there are too many. */
  addConnection(close: (reason: string) => void): ConnectionTotals | undefined {
    const { connections, connectionsWithoutCall } = this.#limits
    if (this.#connections.size >= connections || this.#withoutCall.size >= connectionsWithoutCall) {
      const [oldest] = this.#withoutCall
      if (oldest === undefined) return undefined
      oldest.close('too many connections without a call')
    }
    const connection: ConnectionTotals = new ConnectionTotals(this, {
      close,
      inTurn: this.#turns.connection(),
      onCall: () => this.#withoutCall.delete(connection),
      onEnd: () => {
        this.#connections.delete(connection)
        this.#withoutCall.delete(connection)
      },
    })
    this.#connections.add(connection)
    this.#withoutCall.add(connection)
    return connection
  }

  /** Every counted limit. */
  uses(): readonly LimitUse[] {
    const { total, workingCalls, connections, connectionsWithoutCall } = this.#limits
    return [
      { name: 'bytes', limit: total.bytes.limit, used: this.#used.bytes },
      { name: 'calls', limit: total.calls.limit, used: this.#used.calls },
      { name: 'elements', limit: total.elements.limit, used: this.#used.elements },
      { name: 'streams', limit: total.streams.limit, used: this.#used.streams },
      { name: 'working_calls', limit: workingCalls, used: this.#working },
      { name: 'connections', limit: connections, used: this.#connections.size },
      {
        name: 'connections_without_call',
        limit: connectionsWithoutCall,
        used: this.#withoutCall.size,
      },
    ]
  }

  #hasRoom(name: TotalName, amount: number, share: Share): boolean {
    const { limit, reserve } = this.#limits.total[name]
    return this.#used[name] + amount <= limit - reserve * RESERVE_KEPT[share]
  }

  /** Closes connections without a valid call that hold bytes, oldest first, until there is room. */
  #freeBytes(amount: number, share: Share): boolean {
    for (const connection of this.#withoutCall) {
      if (connection.bytes === 0) continue
      connection.close('its bytes are needed')
      if (this.#hasRoom('bytes', amount, share)) return true
    }
    return false
  }

  #turn(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const begin = () => {
        signal.removeEventListener('abort', leave)
        resolve()
      }
      const leave = () => {
        // Otherwise its turn has come already.
        if (this.#waitingToWork.delete(begin)) reject(signal.reason)
      }
      signal.addEventListener('abort', leave, { once: true })
      this.#waitingToWork.add(begin)
    })
  }
}

const LABELS: Readonly<Record<TotalName, string>> = {
  bytes: 'bytes of requests and answers',
  calls: 'open calls',
  elements: 'elements of the requests',
  streams: 'streams',
}

/** The part of a reserve that is out of reach. */
const RESERVE_KEPT: Readonly<Record<Share, number>> = { ordinary: 1, waiting: 0.5, reserved: 0 }

/** What one connection has taken of the limits. */
export class ConnectionTotals {
  readonly #totals: Totals
  readonly #events: ConnectionEvents
  #bytes = 0
  #streams = 0
  #hasEnded = false

  constructor(totals: Totals, events: ConnectionEvents) {
    this.#totals = totals
    this.#events = events
  }

  /** Runs its tasks in turns that it shares with all connections. */
  get inTurn(): InTurn {
    return this.#events.inTurn
  }

  /** The bytes of incomplete messages and unread answers that it holds. */
  get bytes(): number {
    return this.#bytes
  }

  /** Takes bytes of an incomplete message or an unread answer. Returns the reason when there are not so many left. */
  takeBytes(amount: number, share: Share): string | undefined {
    if (this.#hasEnded) return 'the connection has ended'
    const refusal = this.#totals.take('bytes', amount, share)
    if (refusal !== undefined) return refusal
    this.#bytes += amount
    // To make room may have closed this very connection.
    if (this.#hasEnded) this.#totals.give('bytes', amount)
    return undefined
  }

  giveBytes(amount: number): void {
    if (this.#hasEnded) return
    this.#bytes -= amount
    this.#totals.give('bytes', amount)
  }

  /** Opens a call and takes the bytes of its request. Returns the reason when it is refused. */
  openCall(share: Share, requestBytes: number): string | undefined {
    const tooMany = this.#totals.take('calls', 1, share)
    if (tooMany !== undefined) return tooMany
    const tooLong = this.#totals.take('bytes', requestBytes, share)
    if (tooLong !== undefined) this.#totals.give('calls', 1)
    return tooLong
  }

  /** A whole request of a known method has arrived: the connection is not closed for the sake of others any more. */
  hasCall(): void {
    this.#events.onCall()
  }

  /** Opens a stream. Returns the reason when it is refused. */
  openStream(): string | undefined {
    if (this.#streams >= LIMITS.connection.streams)
      return `${this.#streams} streams are open on this connection`
    const refusal = this.#totals.take('streams', 1, 'ordinary')
    if (refusal === undefined) this.#streams += 1
    return refusal
  }

  closeStream(): void {
    this.#streams -= 1
    this.#totals.give('streams', 1)
  }

  /** Ends a call, also after the connection has ended. */
  closeCall(requestBytes: number): void {
    this.#totals.give('calls', 1)
    this.#totals.give('bytes', requestBytes)
  }

  /** Closes the connection for the sake of a limit. */
  close(reason: string): void {
    this.end()
    this.#events.close(reason)
  }

  /** The connection is closed: gives back what it has taken, except for its calls. */
  end(): void {
    if (this.#hasEnded) return
    this.giveBytes(this.#bytes)
    this.#hasEnded = true
    this.#events.onEnd()
  }
}

interface ConnectionEvents {
  readonly inTurn: InTurn
  readonly close: (reason: string) => void
  readonly onCall: () => void
  readonly onEnd: () => void
}

/** The error of a call that a limit refuses. */
export function exhausted(reason: string): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', reason)
}
