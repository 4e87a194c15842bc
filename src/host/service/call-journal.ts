import { AgentError, messageOf, StatusCode, type StatusCodeName } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { CallRecord } from '../../gen/microvm/instance/v1/records.ts'
import { exhausted } from '../../rpc/limits.ts'
import { statusOf } from '../../rpc/status.ts'
import type { Change, Registry } from '../instance/registry/registry.ts'

/** The limits of what is remembered of calls with an idempotency key. Beyond them the oldest ended ones are forgotten. */
export const CALL_LIMITS = {
  keyBytes: 128,
  ageMs: 24 * 3_600_000,
  callsOfTenant: 1024,
  /** Bytes of the answers. */
  bytesOfTenant: 8 * 1024 * 1024,
} as const

/** Errors that the same request may not get again. */
const PASSING: readonly StatusCodeName[] = [
  'CANCELLED',
  'DEADLINE_EXCEEDED',
  'RESOURCE_EXHAUSTED',
  'UNAVAILABLE',
]

export interface KeyedCall {
  /** Empty for the administrator. */
  readonly tenant: string
  readonly idempotencyKey: string
  readonly method: string
  /** SHA-256 of the request. */
  readonly digest: Uint8Array
  /** It runs although a full disk takes no record of it. */
  readonly frees: boolean
}

interface Kept {
  readonly record: CallRecord
  /** The answer of a call that runs. */
  readonly running: Promise<Uint8Array> | undefined
}

/** Answers a repeated call with the outcome of the first, also when another daemon has served that. */
export class CallJournal {
  readonly #registry: Pick<Registry, 'commit'>
  readonly #nowMs: () => number
  readonly #log: Logger
  /** Of each tenant by idempotency key, oldest first. */
  readonly #kept = new Map<string, Map<string, Kept>>()
  #isClosed = false

  private constructor(
    parts: Omit<Parameters<typeof CallJournal.open>[0], 'registry'> & { registry: Registry },
  ) {
    this.#registry = parts.registry
    this.#nowMs = parts.nowMs
    this.#log = parts.log
  }

  /** `nowMs` is milliseconds since 1970. */
  static async open(parts: {
    readonly registry: Registry
    readonly nowMs: () => number
    readonly log: Logger
  }): Promise<CallJournal> {
    const journal = new CallJournal(parts)
    const records = [...(await parts.registry.load('calls')).values()].map((payload) =>
      CallRecord.decode(payload),
    )
    for (const record of records.sort((a, b) => Number(a.timeMs - b.timeMs)))
      journal.#of(record.tenant).set(record.idempotencyKey, { record, running: undefined })
    return journal
  }

  /**
   * The encoded answer of the call. `work` runs unless the call has an outcome or runs already; `begunMs` when it has
   * been begun before. Throws the error of the first run, unless that may pass; INVALID_ARGUMENT for the key of another
   * call.
   */
  async run(
    call: KeyedCall,
    work: (begunMs: number | undefined) => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    const { idempotencyKey, method, digest, tenant, frees } = call
    const bytes = Buffer.byteLength(idempotencyKey)
    if (bytes < 1 || bytes > CALL_LIMITS.keyBytes)
      throw invalid(`${bytes} bytes, want 1 to ${CALL_LIMITS.keyBytes}`)
    const calls = this.#of(tenant)
    const known = calls.get(idempotencyKey)
    const isRepeated = known !== undefined && !this.#isOld(known)
    const begunMs = isRepeated ? Number(known.record.timeMs) : undefined
    if (isRepeated) {
      const { record, running } = known
      const shown = JSON.stringify(idempotencyKey)
      if (record.method !== method) throw invalid(`${shown} was used for ${record.method}, want another key`)
      if (Buffer.compare(record.digest, digest) !== 0)
        throw invalid(`${shown} was used with another request, want another key`)
      if (running !== undefined) return running
      if (record.ended) return answerOf(record)
    }
    const dropped = this.#makeRoom(tenant, calls)
    const record = {
      ...CallRecord.fromPartial({ tenant, idempotencyKey, method, digest }),
      timeMs: BigInt(this.#nowMs()),
    }
    const running = this.#begin({ record, frees }, dropped, () => work(begunMs))
    calls.delete(idempotencyKey)
    calls.set(idempotencyKey, { record, running })
    return running
  }

  /** No outcome is recorded any longer: the next daemon runs the calls again that end from now on. */
  close(): void {
    this.#isClosed = true
  }

  async #begin(
    { record, frees }: { readonly record: CallRecord; readonly frees: boolean },
    dropped: readonly Change[],
    work: () => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    try {
      await this.#registry.commit([...dropped, changeOf(record)], { frees })
    } catch (error) {
      if (!frees || statusOf(error).code !== 'RESOURCE_EXHAUSTED') {
        // Nothing has begun, so the call may be repeated as a new one.
        this.#of(record.tenant).delete(record.idempotencyKey)
        throw error
      }
      this.#log.warn('call not recorded', { rpc: record.method, error: messageOf(error) })
    }
    try {
      const answer = await work()
      await this.#end({ ...record, ended: true, answer, code: 'OK' }, frees)
      return answer
    } catch (error) {
      const status = statusOf(error)
      // Begun and not ended, as after the daemon's death: the call runs again when it is repeated.
      if (PASSING.includes(status.code))
        this.#of(record.tenant).set(record.idempotencyKey, { record, running: undefined })
      else await this.#end({ ...record, ended: true, ...status }, frees)
      throw error
    }
  }

  async #end(record: CallRecord, frees: boolean): Promise<void> {
    this.#of(record.tenant).set(record.idempotencyKey, { record, running: undefined })
    if (this.#isClosed) return
    try {
      await this.#registry.commit([changeOf(record)], { frees })
    } catch (error) {
      // The call has happened. Repeated after the daemon's death, it would run again.
      this.#log.error('outcome not recorded', { rpc: record.method, error: messageOf(error) })
    }
  }

  #of(tenant: string): Map<string, Kept> {
    const calls = this.#kept.get(tenant) ?? new Map<string, Kept>()
    this.#kept.set(tenant, calls)
    return calls
  }

  #isOld({ record, running }: Kept): boolean {
    return running === undefined && Number(record.timeMs) + CALL_LIMITS.ageMs < this.#nowMs()
  }

  /** Forgets what is too old and what is too much. Throws RESOURCE_EXHAUSTED when all of a tenant's calls run. */
  #makeRoom(tenant: string, calls: Map<string, Kept>): readonly Change[] {
    const dropped: Change[] = []
    let bytes = 0
    for (const { record } of calls.values()) bytes += record.answer.length
    for (const [key, kept] of calls) {
      const isTooMuch = calls.size >= CALL_LIMITS.callsOfTenant || bytes > CALL_LIMITS.bytesOfTenant
      if (!isTooMuch && !this.#isOld(kept)) break
      if (kept.running !== undefined) continue
      calls.delete(key)
      bytes -= kept.record.answer.length
      dropped.push({ table: 'calls', key: rowOf(kept.record), payload: undefined })
    }
    if (calls.size >= CALL_LIMITS.callsOfTenant)
      throw exhausted(
        `calls of tenant "${tenant}" with an idempotency key: ${calls.size} of at most ${CALL_LIMITS.callsOfTenant} run`,
      )
    return dropped
  }
}

function answerOf({ code, answer, message }: CallRecord): Uint8Array {
  if (code === 'OK') return answer
  throw new AgentError(isCode(code) ? code : 'INTERNAL', message)
}

function isCode(code: string): code is StatusCodeName {
  return Object.hasOwn(StatusCode, code)
}

/** A tenant's name has no slash. */
function rowOf({ tenant, idempotencyKey }: Pick<CallRecord, 'tenant' | 'idempotencyKey'>): string {
  return `${tenant}/${idempotencyKey}`
}

function changeOf(record: CallRecord): Change {
  return { table: 'calls', key: rowOf(record), payload: CallRecord.encode(record).finish() }
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `idempotency-key: ${text}`)
}
