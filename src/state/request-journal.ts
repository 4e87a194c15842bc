import { messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { OutOfMemory } from '../gen/state/oom.ts'
import type { RequestPayload } from '../gen/state/request.ts'
import type { Broker, Settled } from '../os/supervisor/broker.ts'
import { type Call, either, type Taken, type TakenByRequests, tell } from './request.ts'
import { KINDS, type StateStore } from './state-store.ts'

const FOLDER = 'requests'

/** The encoded `google.protobuf.Empty`. */
export const EMPTY_RESPONSE = new Uint8Array(0)

/** Knows the requests that the previous agents got. */
export type RequestSource = Pick<Broker, 'confirm' | 'earlierRequests' | 'onSettled'>

/** The value that a request has taken. */
export type TakenValue = Partial<Pick<RequestPayload, 'exit' | 'outOfMemory' | 'response'>>

/** For each kind of value: what to do once its answer is known to be delivered or dropped. */
export interface ValueKinds {
  exit(key: string): Taken
  outOfMemory(event: OutOfMemory): Taken
}

/**
 * Records what each request has taken, by the broker's number, until its answer is delivered or dropped. The next agent
 * answers a request that is sent again from the record, and settles all others as the broker tells. A request with number
 * 0 is never sent again and leaves no record.
 */
export class RequestJournal {
  readonly #state: StateStore
  readonly #log: Logger
  readonly #source: RequestSource
  /** Requests that were sent again and failed. */
  readonly #failed = new Set<bigint>()
  #isRestored = false
  readonly #recorded = new Set<bigint>()
  /** Requests whose answers the next agent infers from the record of a container or a process. */
  readonly #told = new Set<bigint>()
  /** What the previous agents took, until the outcome of the answers is known. */
  readonly #unsettled = new Map<bigint, readonly Taken[]>()
  /** Calls with an idempotency key that previous agents began: their callers send them again, over any connection. */
  readonly #reopened = new Set<bigint>()
  /** Calls whose outcomes previous agents kept, and which may have died before they forgot what those took. */
  readonly #keptElsewhere = new Set<bigint>()
  /** Work that the previous agent began, and this one ends. */
  readonly #resumed = new Map<bigint, Promise<void>>()

  constructor(state: StateStore, log: Logger, source: RequestSource) {
    this.#state = state
    this.#log = log
    this.#source = source
    source.onSettled((number, outcome) => {
      this.#tell(number, outcome)
      // Until the end of `restore`, more may depend on this outcome.
      if (this.#isRestored) source.confirm(number)
    })
  }

  /** Keeps an existing record. Throws RESOURCE_EXHAUSTED or the kernel's error; the call must then fail. */
  take(call: Pick<Call, 'number' | 'takes'>, value: TakenValue, taken: Taken): void {
    const { number } = call
    try {
      if (number === 0n || this.#recorded.has(number)) return
      this.#record(number, value)
    } finally {
      call.takes(this.#forgetting(number, taken))
    }
  }

  #record(number: bigint, value: TakenValue): void {
    this.#state.write(KINDS.request, nameOf(number), { ...NO_VALUE, request: number, ...value })
    this.#recorded.add(number)
  }

  /** Records the encoded answer, after the work; before it, if the work must not begin twice. */
  answer(call: Pick<Call, 'number' | 'takes'>, response: Uint8Array): void {
    if (call.number !== 0n) this.take(call, { response }, NOTHING)
  }

  /**
   * Writes no request record: the record of the container or process that the call made implies its empty answer, and the
   * next agent calls {@link done} when it restores that. Call {@link keep} before that record changes.
   */
  answerByRecord(call: Pick<Call, 'number' | 'takes'>): void {
    const { number } = call
    if (number === 0n) return
    this.#told.add(number)
    const forget = () => void this.#told.delete(number)
    call.takes(this.#forgetting(number, either(forget)))
  }

  /** Records the answer itself, because the record that implied it is about to change. */
  keep(number: bigint): void {
    if (!this.#told.delete(number)) return
    this.#record(number, { response: EMPTY_RESPONSE })
  }

  /** What the request's record holds, if there is one. Throws UnreadableState. */
  of(number: bigint): TakenValue | undefined {
    return this.#recorded.has(number) ? this.#state.read(KINDS.request, nameOf(number)) : undefined
  }

  /** The answer to a request that the previous agent carried out or began; undefined: run it. Throws UnreadableState. */
  answerTo(number: bigint): Promise<Uint8Array> | undefined {
    const resumed = this.#resumed.get(number)
    if (resumed !== undefined) return resumed.then(() => EMPTY_RESPONSE)
    const response = this.of(number)?.response
    return response && Promise.resolve(response)
  }

  /** A request that is sent again takes over what the previous agents took for it. */
  begin(call: Pick<Call, 'number' | 'takes'>): void {
    const { number } = call
    if (!this.isSentAgain(number)) return
    call.takes({
      delivered: () => this.#tell(number, 'written'),
      dropped: () => {
        // Values that are restored after this are dropped too.
        this.#failed.add(number)
        this.#tell(number, 'dropped')
      },
    })
  }

  /** Reads the names of the previous agents' records. */
  read(): void {
    for (const name of this.#state.list(FOLDER)) this.#recorded.add(BigInt(name))
  }

  /** False for number 0. */
  isSentAgain(number: bigint): boolean {
    const isOpen = this.#source.earlierRequests.get(number) === 'open' || this.#reopened.has(number)
    return isOpen && !this.#failed.has(number)
  }

  /** To be called before anything is restored: the request is sent again, although the broker does not know it. */
  reopen(number: bigint): void {
    this.#reopened.add(number)
  }

  /** To be called before anything is restored: the outcome of the request is kept elsewhere, with all that it took. */
  keptElsewhere(number: bigint): void {
    this.#keptElsewhere.add(number)
  }

  /** A request that was reopened is not sent again after all: drops what the previous agent took for it. */
  abandon(number: bigint): void {
    this.#reopened.delete(number)
    this.#tell(number, 'dropped')
    this.#forget(number)
  }

  /** The request was carried out; records its empty answer if it is sent again. */
  done(number: bigint): void {
    if (this.isSentAgain(number)) this.answer({ number, takes: () => {} }, EMPTY_RESPONSE)
  }

  /** Answers the request, if it is sent again, when `work` has ended. */
  resume(number: bigint, work: Promise<void>): void {
    // Without the request, nothing else handles the rejection.
    work.catch(() => {})
    if (number !== 0n) this.#resumed.set(number, work)
  }

  /**
   * Delivers or drops what an earlier request took, now or when the outcome is known. It is dropped when the broker no
   * longer knows the request, when its client leaves, and when the repeated request fails.
   */
  settle(number: bigint, taken: Taken): void {
    this.#unsettled.set(number, [...(this.#unsettled.get(number) ?? []), taken])
    const state = this.#source.earlierRequests.get(number)
    if (state === 'written' || this.#keptElsewhere.has(number)) this.#tell(number, 'written')
    else if (state !== 'answered' && !this.isSentAgain(number)) this.#tell(number, 'dropped')
  }

  #tell(number: bigint, outcome: Settled): void {
    const all = this.#unsettled.get(number) ?? []
    this.#unsettled.delete(number)
    tell(all, outcome === 'written', this.#log, { request: `${number}` })
  }

  settleAll({ taken }: TakenByRequests): void {
    for (const [number, one] of taken) this.settle(number, one)
  }

  /** Settles all records, then confirms the outcomes to the broker. */
  restore(kinds: ValueKinds): void {
    // The latest request first, because each dropped value returns to the front of its queue.
    for (const number of [...this.#recorded].sort((one, other) => (one < other ? 1 : -1))) {
      this.settle(number, this.#forgetting(number, this.#restored(number, kinds)))
    }
    // Confirm last: an agent that dies before this settles everything once more.
    this.#isRestored = true
    for (const [number, state] of this.#source.earlierRequests) {
      if (state === 'written' || state === 'dropped') this.#source.confirm(number)
    }
  }

  #restored(number: bigint, kinds: ValueKinds): Taken {
    try {
      const { exit, outOfMemory } = this.of(number) ?? {}
      if (outOfMemory !== undefined) return kinds.outOfMemory(outOfMemory)
      return exit === undefined ? NOTHING : kinds.exit(exit)
    } catch (error) {
      this.#log.error('value taken by a request lost', { error: messageOf(error) })
      return NOTHING
    }
  }

  /** Resolves when the answers of all requests that are sent again are settled. */
  async settled(): Promise<void> {
    const open = [...this.#source.earlierRequests.keys()].filter((number) => this.isSentAgain(number))
    await Promise.all(
      open.map((number) => {
        const { promise, resolve } = Promise.withResolvers<void>()
        this.settle(number, either(resolve))
        return promise
      }),
    )
  }

  /** The record goes last: if this agent dies before, the next one settles it once more. */
  #forgetting(number: bigint, taken: Taken): Taken {
    const forget = () => this.#forget(number)
    return {
      delivered: () => {
        taken.delivered()
        forget()
      },
      dropped: () => {
        taken.dropped()
        forget()
      },
    }
  }

  #forget(number: bigint): void {
    if (this.#recorded.delete(number)) this.#state.remove(nameOf(number))
  }
}

/** For a request whose answer takes no value: only its record is removed. */
const NOTHING = either(() => {})

const NO_VALUE = { response: undefined, outOfMemory: undefined, exit: undefined }

function nameOf(number: bigint): string {
  return `${FOLDER}/${number}`
}
