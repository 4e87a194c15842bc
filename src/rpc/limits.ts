import { AgentError } from '../base/errors.ts'
import { type InTurn, Turns } from './turns.ts'

const MIB = 1024 * 1024

/** All limits of the API (docs/reference/limits.md). Beyond a limit, new work is refused with RESOURCE_EXHAUSTED. */
export const LIMITS = {
  /** Bytes of an encoded message, in both directions and both framings. */
  messageBytes: 4 * MIB,
  /**
   * Fields with a value, list items and map entries of a request, nested ones too. They bound its memory: an empty message
   * takes two bytes encoded, but some hundred decoded. The longest known requests have some thousand elements.
   */
  elements: 65_536,
  /** Limits of one connection. A host polls three streams per process, and copies files in pieces of a megabyte. */
  connection: {
    openCalls: 1024,
    /** The same for gRPC, whose clients wait beyond the limit; a call that has just begun costs more there. */
    openStreams: 256,
    /** Additional calls with the share `reserved`. */
    reservedCalls: 64,
    /** Bytes of the encoded requests of open calls (ttRPC). */
    requestBytes: 32 * MIB,
    /** Bytes of unread answers; beyond the limit the connection is closed (ttRPC). */
    answerBytes: 64 * MIB,
    /** Requests of one connection that are served before the event loop serves others. */
    requestsAtOnce: 32,
    /** Milliseconds for the preface of HTTP/2, and for each frame header of ttRPC, from its first byte. */
    headerMs: 10_000,
    /** Streams of server reflection, of the health service's Watch and of StreamEvents. */
    streams: 8,
  },
  /** Limits of all connections together. `reserve` is kept for calls with a {@link Share} of it. */
  total: {
    /** Bytes of incomplete messages, open requests and unread answers. */
    bytes: { limit: 96 * MIB, reserve: 8 * MIB },
    calls: { limit: 4096, reserve: 512 },
    /** Elements of open requests. An element takes up to 200 bytes of the heap. */
    elements: { limit: 4 * 65_536, reserve: 8192 },
    streams: { limit: 64, reserve: 0 },
  },
  streamMessageBytes: 4096,
  /** Calls with an idempotency key, of all callers together. */
  keyed: {
    keyBytes: 128,
    /** Calls that run, and outcomes that are kept. */
    outcomes: 1024,
    /** Bytes of an answer that is kept. */
    outcomeBytes: 64 * 1024,
    totalBytes: 8 * MIB,
    ageMs: 600_000,
  },
  /** Calls that work at the same time. Waits for a process do not count; further calls are queued. */
  workingCalls: 64,
  /** gRPC calls that begin, or end with their connection, in one iteration of the event loop. */
  callsAtOnce: 32,
  /** A further connection closes the oldest one without a valid call, or is refused if there is none. */
  connections: 1024,
  /** Connections without a valid call, such as spare ones of a host. A further one closes the oldest of them. */
  connectionsWithoutCall: 256,
} as const

export type TotalName = keyof typeof LIMITS.total

/** The part of the reserves that a call may use: none, half (waits for exits), or all (health, signals, removals). */
export type Share = 'ordinary' | 'waiting' | 'reserved'

interface LimitUse {
  readonly name: string
  readonly limit: number
  readonly used: number
}

export interface TotalLimits {
  readonly total: Readonly<Record<TotalName, { readonly limit: number; readonly reserve: number }>>
  readonly workingCalls: number
  readonly connections: number
  readonly connectionsWithoutCall: number
  readonly connection: { readonly streams: number }
}

export class Totals {
  readonly #limits: TotalLimits
  readonly #used: Record<TotalName, number> = { bytes: 0, calls: 0, elements: 0, streams: 0 }
  /** Oldest first. */
  readonly #connections = new Set<ConnectionTotals>()
  readonly #withoutCall = new Set<ConnectionTotals>()
  readonly #turns = new Turns(LIMITS.callsAtOnce)
  #working = 0
  /** Oldest first. */
  readonly #waitingToWork = new Set<() => void>()

  constructor(limits: TotalLimits = LIMITS) {
    this.#limits = limits
  }

  /** Takes `amount` of a limit; the caller returns it with `give`. Returns the reason of a refusal. */
  take(name: TotalName, amount: number, share: Share): string | undefined {
    if (!this.#hasRoom(name, amount, share) && (name !== 'bytes' || !this.#freeBytes(amount, share))) {
      const { limit } = this.#limits.total[name]
      return `${LABELS[name]} of all connections: ${this.#used[name]} of at most ${limit} in use`
    }
    this.#used[name] += amount
    return undefined
  }

  /** Takes `amount` even beyond the limit. */
  takeAnyway(name: TotalName, amount: number): void {
    this.#used[name] += amount
  }

  give(name: TotalName, amount: number): void {
    this.#used[name] -= amount
  }

  /** Waits until the call may work; resolves with the function that ends its work. Throws the reason of `signal`. */
  async beginWork(signal: AbortSignal): Promise<() => void> {
    const end = this.tryToWork()
    if (end !== undefined) return end
    await this.#turn(signal)
    return () => this.#endWork()
  }

  /** Returns undefined when the call has to wait. */
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
    // In a later iteration of the event loop, so that others run even if no call ever waits for I/O.
    setImmediate(next)
  }

  /** Returns undefined when there are too many connections and none without a valid call can be closed. */
  addConnection(close: (reason: string) => void): ConnectionTotals | undefined {
    const { connections, connectionsWithoutCall } = this.#limits
    if (this.#connections.size >= connections || this.#withoutCall.size >= connectionsWithoutCall) {
      const [oldest] = this.#withoutCall
      if (oldest === undefined) return undefined
      oldest.close('too many connections without a call')
    }
    const connection: ConnectionTotals = new ConnectionTotals(this, {
      close,
      streams: this.#limits.connection.streams,
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
      connection.close('closed to free bytes for other connections')
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
        // Otherwise `begin` is already scheduled.
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

/** The part of a reserve that a call cannot use. */
const RESERVE_KEPT: Readonly<Record<Share, number>> = { ordinary: 1, waiting: 0.5, reserved: 0 }

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

  get inTurn(): InTurn {
    return this.#events.inTurn
  }

  /** Bytes of incomplete messages and unread answers. */
  get bytes(): number {
    return this.#bytes
  }

  /** Returns the reason of a refusal. */
  takeBytes(amount: number, share: Share): string | undefined {
    if (this.#hasEnded) return 'the connection has ended'
    const refusal = this.#totals.take('bytes', amount, share)
    if (refusal !== undefined) return refusal
    this.#bytes += amount
    // `take` may have closed this very connection to make room.
    if (this.#hasEnded) this.#totals.give('bytes', amount)
    return undefined
  }

  giveBytes(amount: number): void {
    if (this.#hasEnded) return
    this.#bytes -= amount
    this.#totals.give('bytes', amount)
  }

  /** Counts a call and the bytes of its request. Returns the reason of a refusal. */
  openCall(share: Share, requestBytes: number): string | undefined {
    const tooMany = this.#totals.take('calls', 1, share)
    if (tooMany !== undefined) return tooMany
    const tooLong = this.#totals.take('bytes', requestBytes, share)
    if (tooLong !== undefined) this.#totals.give('calls', 1)
    return tooLong
  }

  /** Called for a whole request of a known method: the connection is then never closed to make room. */
  hasCall(): void {
    this.#events.onCall()
  }

  /** Returns the reason of a refusal. */
  openStream(): string | undefined {
    if (this.#streams >= this.#events.streams) return `${this.#streams} streams are open on this connection`
    const refusal = this.#totals.take('streams', 1, 'ordinary')
    if (refusal === undefined) this.#streams += 1
    return refusal
  }

  closeStream(): void {
    this.#streams -= 1
    this.#totals.give('streams', 1)
  }

  /** May be called after the connection has ended. */
  closeCall(requestBytes: number): void {
    this.#totals.give('calls', 1)
    this.#totals.give('bytes', requestBytes)
  }

  close(reason: string): void {
    this.end()
    this.#events.close(reason)
  }

  /** Releases the limits that the closed connection has taken, except for its calls, which `closeCall` ends. */
  end(): void {
    if (this.#hasEnded) return
    this.giveBytes(this.#bytes)
    this.#hasEnded = true
    this.#events.onEnd()
  }
}

interface ConnectionEvents {
  /** The most streams. */
  readonly streams: number
  readonly inTurn: InTurn
  readonly close: (reason: string) => void
  readonly onCall: () => void
  readonly onEnd: () => void
}

export function exhausted(reason: string): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', reason)
}
