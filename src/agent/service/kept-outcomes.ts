import { AgentError, messageOf, StatusCode, type StatusCodeName } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { bytesOf } from '../../base/stored-bytes.ts'
import type { OutcomePayload } from '../../gen/state/outcome.ts'
import { exhausted, type LIMITS } from '../../rpc/limits.ts'
import { IDEMPOTENCY_KEY, type Outcome } from '../../rpc/method.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

const FOLDER = 'outcomes'

/** A call with a key gets a number that the broker gives to no request. */
const FIRST_NUMBER = 1n << 63n

/** Errors that the same request may not get again. They are not kept: a repeated call begins anew. */
const PASSING: readonly StatusCodeName[] = [
  'CANCELLED',
  'DEADLINE_EXCEEDED',
  'RESOURCE_EXHAUSTED',
  'UNAVAILABLE',
]

export interface KeyedCall {
  readonly idempotencyKey: string
  readonly method: string
  /** SHA-256 of the request. */
  readonly digest: Uint8Array
}

/** A call with a key that runs, has ended, or was begun by the previous agent and has to be carried out. */
export interface KeptCall {
  record: Omit<OutcomePayload, 'schemaVersion'>
  /** Whether the previous agent has begun it. */
  readonly isRestored: boolean
  /** The outcome of this agent's run, until that has ended. */
  running: Promise<Outcome> | undefined
  /** Whether the run has begun to work, or was answered from a record. */
  hasBegun: boolean
  /** Whether a live connection has taken the outcome, so that others may displace it. */
  isDelivered: boolean
  sinceMs: number
}

export interface OutcomeContext {
  readonly state: StateStore
  readonly requests: RequestJournal
  readonly log: Logger
  /** Of the clock that stands while the guest does. */
  readonly nowMs: () => number
  readonly boottimeNs: () => bigint
  readonly limits: { readonly [Name in keyof typeof LIMITS.keyed]: number }
}

/**
 * The outcomes of calls with an idempotency key. Each has a record, written before the work begins and again before the
 * answer is sent. An agent that is killed in between leaves a record without an outcome. The call is then carried out when it
 * is repeated, under the number of its first run, by which handlers find what that run has done.
 */
export class KeptOutcomes {
  readonly #parts: OutcomeContext
  /** By key: those without an outcome where they began, the others in the order in which they ended. */
  readonly #kept = new Map<string, KeptCall>()
  #bytes = 0
  #lastNumber = 0n

  constructor(parts: OutcomeContext) {
    this.#parts = parts
  }

  /** Reads the records of the previous agents. To be called before anything is restored. */
  read(): void {
    const { log, nowMs, requests, state } = this.#parts
    const numbers = state.list(FOLDER).map(BigInt)
    for (const number of numbers.sort((one, other) => (one < other ? -1 : 1))) {
      try {
        const record = state.require(KINDS.outcome, nameOf(number))
        const call = { record, isRestored: true, running: undefined, hasBegun: true }
        this.#kept.set(record.idempotencyKey, { ...call, isDelivered: true, sinceMs: nowMs() })
        this.#bytes += bytesIn(record)
        if (record.code === '') requests.reopen(number)
        else if (record.code === 'OK' && record.omittedBytes === 0n) requests.keptElsewhere(number)
      } catch (error) {
        log.error('outcome lost', { number: `${number}`, error: messageOf(error) })
      }
    }
  }

  /** Throws INVALID_ARGUMENT for a key that is too long, or that belongs to another call. */
  find({ idempotencyKey, method, digest }: KeyedCall): KeptCall | undefined {
    this.#forgetOld()
    const call = this.#kept.get(idempotencyKey)
    if (call === undefined) return undefined
    const shown = JSON.stringify(idempotencyKey)
    if (call.record.method !== method)
      throw wrongKey(`${shown} was used for ${call.record.method}, want another key`)
    if (Buffer.compare(call.record.digest, digest) !== 0)
      throw wrongKey(`${shown} was used with another request, want another key`)
    return call
  }

  /** A call that {@link find} does not know. Throws RESOURCE_EXHAUSTED. */
  add(keyed: KeyedCall): KeptCall {
    const { boottimeNs, limits, nowMs } = this.#parts
    if (this.#kept.has(keyed.idempotencyKey)) throw new Error('the key is of a call that is known')
    while (this.#kept.size >= limits.outcomes) {
      if (!this.#displace())
        throw exhausted(
          `calls with an idempotency key: ${this.#kept.size} of at most ${limits.outcomes} kept`,
        )
    }
    const now = FIRST_NUMBER + boottimeNs()
    this.#lastNumber = now > this.#lastNumber ? now : this.#lastNumber + 1n
    const record = { ...keyed, number: this.#lastNumber, ...NO_OUTCOME }
    const call = { record, isRestored: false, running: undefined, hasBegun: false }
    const added = { ...call, isDelivered: false, sinceMs: nowMs() }
    this.#kept.set(keyed.idempotencyKey, added)
    return added
  }

  /** Records that the work of a call is about to begin. Throws RESOURCE_EXHAUSTED or the kernel's error. */
  begin(call: KeptCall): void {
    call.hasBegun = true
    if (!call.isRestored) this.#write(call)
  }

  /** Keeps the outcome of a run, unless it may pass. Returns the outcome as its callers get it. */
  end(call: KeptCall, outcome: Outcome): Outcome {
    call.running = undefined
    call.sinceMs = this.#parts.nowMs()
    if (!outcome.ok && !call.hasBegun && call.isRestored) return outcome
    if (!outcome.ok && (!call.hasBegun || PASSING.includes(outcome.code))) {
      this.#forget(call)
      return outcome
    }
    const { limits, log } = this.#parts
    const bytes = outcome.ok ? outcome.payload.length + (outcome.bulk?.length ?? 0) : 0
    const isKept = bytes <= limits.outcomeBytes && this.#makeRoom(bytes)
    const payload = outcome.ok && isKept ? wholeOf(outcome) : NO_BYTES
    const { code, message } = outcome.ok ? { code: 'OK', message: '' } : outcome
    const omittedBytes = isKept ? 0n : BigInt(bytes)
    call.record = { ...call.record, code, message, response: payload, omittedBytes }
    this.#kept.delete(call.record.idempotencyKey)
    this.#kept.set(call.record.idempotencyKey, call)
    this.#bytes += bytesIn(call.record)
    try {
      this.#write(call)
    } catch (error) {
      // It has happened. Repeated after the agent's death, it would be carried out again.
      log.error('outcome not recorded', { rpc: call.record.method, error: messageOf(error) })
    }
    if (!outcome.ok || !isKept) return outcome
    // From here on the record has what the answer takes away.
    outcome.delivered?.(true)
    return { ok: true, payload }
  }

  /** The kept outcome; undefined before the call has ended. */
  outcomeOf({ record }: KeptCall): Outcome | undefined {
    const { code, idempotencyKey, message, omittedBytes, response } = record
    if (code === '') return undefined
    if (omittedBytes > 0n) {
      const { outcomeBytes, totalBytes } = this.#parts.limits
      const most = omittedBytes > outcomeBytes ? outcomeBytes : totalBytes
      const shown = JSON.stringify(idempotencyKey)
      const text = `${IDEMPOTENCY_KEY}: the answer to ${shown} of ${omittedBytes} bytes was not kept, want at most ${most}`
      return { ok: false, code: 'FAILED_PRECONDITION', message: text }
    }
    if (code === 'OK') return { ok: true, payload: response }
    return { ok: false, code: isCode(code) ? code : 'INTERNAL', message }
  }

  #write({ record }: KeptCall): void {
    this.#parts.state.write(KINDS.outcome, nameOf(record.number), record)
  }

  #forgetOld(): void {
    const { limits, nowMs } = this.#parts
    for (const call of this.#kept.values()) {
      if (call.running !== undefined) continue
      if (call.sinceMs + limits.ageMs > nowMs()) return
      this.#forget(call)
    }
  }

  #makeRoom(bytes: number): boolean {
    while (this.#bytes + bytes > this.#parts.limits.totalBytes) if (!this.#displace()) return false
    return true
  }

  /** Forgets the oldest outcome that a caller has got. Returns false when there is none. */
  #displace(): boolean {
    for (const call of this.#kept.values()) {
      if (call.running !== undefined || !call.isDelivered || call.record.code === '') continue
      this.#forget(call)
      return true
    }
    return false
  }

  #forget(call: KeptCall): void {
    const { requests, state } = this.#parts
    const { idempotencyKey, number } = call.record
    if (this.#kept.get(idempotencyKey) === call) this.#kept.delete(idempotencyKey)
    this.#bytes -= bytesIn(call.record)
    if (call.hasBegun || call.isRestored) state.remove(nameOf(number))
    if (call.isRestored) requests.abandon(number)
  }
}

const NO_BYTES = new Uint8Array(0)

const NO_OUTCOME = { code: '', message: '', response: NO_BYTES, omittedBytes: 0n }

export function wrongKey(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `${IDEMPOTENCY_KEY}: ${text}`)
}

function wholeOf({ payload, bulk }: Extract<Outcome, { readonly ok: true }>): Uint8Array {
  return bulk === undefined ? payload : Buffer.concat([payload, bytesOf(bulk)])
}

function bytesIn({ message, response }: KeptCall['record']): number {
  return message.length + response.length
}

function isCode(code: string): code is StatusCodeName {
  return Object.hasOwn(StatusCode, code)
}

function nameOf(number: bigint): string {
  return `${FOLDER}/${number}`
}
