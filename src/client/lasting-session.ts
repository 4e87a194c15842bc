import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, ConnectionLost } from '../base/errors.ts'
import type { CallOptions } from '../rpc/ttrpc/client.ts'
import type { Session } from './open-session.ts'

export interface LastingParts {
  /** Dials again, once. Rejects with UNAVAILABLE, an errno, or what a daemon between says. */
  readonly dial: (signal: AbortSignal) => Promise<Session>
  /** How long to dial again for after a loss, and after each word that the machine is moving; 0: a loss ends the session. */
  readonly returnMs: number
  /** Called once for a loss: when the agent answers again, or after a second. */
  readonly onLoss: () => void
  readonly signal: AbortSignal
}

const RETRY_MS = 100
/** How long a machine may be moving, in the words of its daemons. */
const MOST_MOVING_MS = 1_800_000
const QUIET_MS = 1000

/** The most losses in a row without any answer: a request may be too long for what cuts the connection. */
const MOST_LOSSES = 20

/** What a repeated call needs: a key, a name of a read, nothing, or it cannot be repeated. */
export const REPEATS: Readonly<Record<string, 'named' | 'plain' | 'never'>> = {
  ReadStdout: 'named',
  ReadStderr: 'named',
  // It belongs to its connection.
  SignalOnHangup: 'plain',
  GetOOMEvent: 'never',
  // They may be done twice.
  Detach: 'plain',
  Attach: 'plain',
  Resumed: 'plain',
  Quiesce: 'plain',
  Thaw: 'plain',
}

/**
 * A session that outlives its connection: it dials again, and repeats the calls under way, each of which happens once. For
 * an agent of this project only, because others do not know the keys.
 */
export function lastingSession(first: Session, parts: LastingParts): Session {
  if (parts.returnMs === 0) return first
  const lasting = new LastingSession(first, parts)
  return {
    call: (service, method, payload, options) => lasting.call(service, method, payload, options),
    close: () => lasting.close(),
    closed: lasting.closed,
  }
}

class LastingSession {
  readonly closed: Promise<void>
  readonly #parts: LastingParts
  readonly #ended = Promise.withResolvers<void>()
  readonly #over = new AbortController()
  readonly #name = randomUUID()
  #session: Session
  #reads = 0
  #losses = 0
  #returning: Promise<void> | undefined

  constructor(first: Session, parts: LastingParts) {
    this.#session = first
    this.#parts = parts
    this.closed = this.#ended.promise
  }

  async call(
    service: string,
    method: string,
    payload: Uint8Array,
    options: CallOptions = {},
  ): Promise<Uint8Array> {
    const { timeoutMs } = options
    const until = performance.now() + (timeoutMs ?? 0)
    const metadata = { ...this.#metadataOf(method), ...options.metadata }
    for (;;) {
      const session = this.#session
      const left = timeoutMs === undefined ? {} : { timeoutMs: Math.max(1, until - performance.now()) }
      try {
        const answer = await session.call(service, method, payload, { ...options, ...left, metadata })
        this.#losses = 0
        return answer
      } catch (error) {
        if (isDetached(error)) await this.#sleep()
        else if (!(error instanceof ConnectionLost) || REPEATS[method] === 'never') throw error
        else await this.#return(session, error)
        options.signal?.throwIfAborted()
      }
    }
  }

  close(): void {
    this.#over.abort()
    this.#session.close()
    this.#ended.resolve()
  }

  #metadataOf(method: string): Record<string, string> {
    const repeats = REPEATS[method]
    if (repeats === undefined) return { 'idempotency-key': randomUUID() }
    if (repeats !== 'named') return {}
    this.#reads += 1
    return { 'output-read': `${this.#name} ${this.#reads}` }
  }

  /** Replaces a lost connection, once for all calls on it. Throws `loss` when no agent answers, or another one. */
  async #return(lost: Session, loss: unknown): Promise<void> {
    if (this.#over.signal.aborted) throw loss
    if (this.#session === lost) {
      this.#returning ??= this.#dialAgain(lost, loss).finally(() => {
        this.#returning = undefined
      })
    }
    await this.#returning
  }

  async #dialAgain(lost: Session, loss: unknown): Promise<void> {
    const { dial, onLoss, returnMs, signal } = this.#parts
    this.#losses += 1
    if (this.#losses > MOST_LOSSES) throw loss
    lost.close()
    const ended = AbortSignal.any([signal, this.#over.signal])
    const beganMs = performance.now()
    let untilMs = beganMs + returnMs
    let isTold = false
    for (;;) {
      try {
        const session = await dial(ended)
        if (!(await knowsKeys(session))) {
          session.close()
          throw loss
        }
        this.#session = session
        if (!isTold) onLoss()
        return
      } catch (error) {
        signal.throwIfAborted()
        if (isMoving(error))
          untilMs = Math.max(untilMs, Math.min(performance.now() + returnMs, beganMs + MOST_MOVING_MS))
        if (error === loss || this.#over.signal.aborted || performance.now() >= untilMs) {
          this.#ended.resolve()
          throw loss
        }
      }
      if (!isTold && performance.now() >= beganMs + QUIET_MS) {
        isTold = true
        onLoss()
      }
      await this.#sleep()
    }
  }

  async #sleep(): Promise<void> {
    const { signal } = this.#parts
    await delay(RETRY_MS, undefined, { signal: AbortSignal.any([signal, this.#over.signal]) }).catch(() => {
      signal.throwIfAborted()
    })
  }
}

/** The agent has been told that its connections are about to be lost. */
function isDetached(error: unknown): boolean {
  return error instanceof AgentError && error.code === 'UNAVAILABLE' && error.message.startsWith('Detach: ')
}

/** Its daemon says so, or that of the host where it goes. */
function isMoving(error: unknown): boolean {
  return error instanceof AgentError && error.reason === 'moving'
}

/** Other agents lack the service. */
async function knowsKeys(session: Session): Promise<boolean> {
  try {
    await session.call('microvm.agent.v1.Introspection', 'GetVersion', new Uint8Array(), { timeoutMs: 5000 })
    return true
  } catch (error) {
    if (error instanceof AgentError && error.code === 'UNIMPLEMENTED') return false
    if (error instanceof ConnectionLost) throw error
    return true
  }
}
