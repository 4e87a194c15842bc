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

/** Where the requests of the time before are known. */
export type RequestSource = Pick<Broker, 'confirm' | 'earlierRequests' | 'onSettled'>

/** What a request has taken: one of these. */
export type TakenValue = Partial<Pick<RequestPayload, 'exit' | 'outOfMemory' | 'response'>>

/** What delivers or drops the values that requests of the time before have taken. */
export interface ValueKinds {
  exit(key: string): Taken
  outOfMemory(event: OutOfMemory): Taken
}

/**
 * What requests have taken, by the broker's numbers, until their answers were delivered or dropped. A restarted agent that
 * gets such a request again answers the same; what it does not get again, it delivers or drops, as the broker tells. Number
 * 0 stands for a request that is not sent again: nothing is recorded.
 */
export class RequestJournal {
  readonly #state: StateStore
  readonly #log: Logger
  readonly #source: RequestSource
  /** The requests that are sent again and have failed. */
  readonly #failed = new Set<bigint>()
  #isRestored = false
  readonly #recorded = new Set<bigint>()
  /** The requests of this agent whose answers another record tells. */
  readonly #told = new Set<bigint>()
  /** What previous agents took, until it is known what became of the answers. */
  readonly #unsettled = new Map<bigint, readonly Taken[]>()
  /** Work that the previous agent began, and this one ends. */
  readonly #resumed = new Map<bigint, Promise<void>>()

  constructor(state: StateStore, log: Logger, source: RequestSource) {
    this.#state = state
    this.#log = log
    this.#source = source
    source.onSettled((number, outcome) => {
      this.#tell(number, outcome)
      // Before, there may be more to settle.
      if (this.#isRestored) source.confirm(number)
    })
  }

  /** Records what the answer to a call takes, before the answer is sent. Throws the kernel's error; the call must then fail. */
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

  /** Records the encoded answer, once the call was carried out, or, for one that must not be begun twice, before. */
  answer(call: Pick<Call, 'number' | 'takes'>, response: Uint8Array): void {
    if (call.number !== 0n) this.take(call, { response }, NOTHING)
  }

  /**
   * Leaves the answer of a call that answers nothing to the record of what it has made, from which {@link done} follows when it
   * is restored. Whoever changes or removes that record calls {@link keep} before.
   */
  answerByRecord(call: Pick<Call, 'number' | 'takes'>): void {
    const { number } = call
    if (number === 0n) return
    this.#told.add(number)
    const forget = () => void this.#told.delete(number)
    call.takes(this.#forgetting(number, either(forget)))
  }

  /** The record that tells the answer to a request does so no more: the answer is recorded, until its outcome is known. */
  keep(number: bigint): void {
    if (!this.#told.delete(number)) return
    this.#record(number, { response: EMPTY_RESPONSE })
  }

  /** What a request has taken; undefined when nothing is recorded. Throws UnreadableState. */
  of(number: bigint): TakenValue | undefined {
    return this.#recorded.has(number) ? this.#state.read(KINDS.request, nameOf(number)) : undefined
  }

  /** The answer to a request that the previous agent carried out or began; undefined for others. Throws UnreadableState. */
  answerTo(number: bigint): Promise<Uint8Array> | undefined {
    const resumed = this.#resumed.get(number)
    if (resumed !== undefined) return resumed.then(() => EMPTY_RESPONSE)
    const response = this.of(number)?.response
    return response && Promise.resolve(response)
  }

  /** A request has come. When it is sent again, this call takes over what the previous agents took for it. */
  begin(call: Pick<Call, 'number' | 'takes'>): void {
    const { number } = call
    if (!this.isSentAgain(number)) return
    call.takes({
      delivered: () => this.#tell(number, 'written'),
      dropped: () => {
        // What is restored later is dropped then.
        this.#failed.add(number)
        this.#tell(number, 'dropped')
      },
    })
  }

  /** Learns what the previous agents recorded. */
  read(): void {
    for (const name of this.#state.list(FOLDER)) this.#recorded.add(BigInt(name))
  }

  /** Whether a request of the time before is sent again; false for number 0. */
  isSentAgain(number: bigint): boolean {
    return this.#source.earlierRequests.get(number) === 'open' && !this.#failed.has(number)
  }

  /** The request was carried out: it is answered if it is sent again. */
  done(number: bigint): void {
    if (this.isSentAgain(number)) this.answer({ number, takes: () => {} }, EMPTY_RESPONSE)
  }

  /** The request is answered, if it is sent again, once `work` has ended. */
  resume(number: bigint, work: Promise<void>): void {
    // It may not be sent again.
    work.catch(() => {})
    if (number !== 0n) this.#resumed.set(number, work)
  }

  /**
   * Delivers or drops what a request of the time before has taken, now or as soon as it is known. It is dropped when the
   * broker does not know of the request any more, when the client leaves before its request is sent again, and when the
   * request fails then.
   */
  settle(number: bigint, taken: Taken): void {
    this.#unsettled.set(number, [...(this.#unsettled.get(number) ?? []), taken])
    const state = this.#source.earlierRequests.get(number)
    if (state === 'written') this.#tell(number, state)
    else if (state !== 'answered' && !this.isSentAgain(number)) this.#tell(number, 'dropped')
  }

  #tell(number: bigint, outcome: Settled): void {
    const all = this.#unsettled.get(number) ?? []
    this.#unsettled.delete(number)
    tell(all, outcome === 'written', this.#log, { request: `${number}` })
  }

  /** Settles what requests of the time before have taken of one kind. */
  settleAll({ taken }: TakenByRequests): void {
    for (const [number, one] of taken) this.settle(number, one)
  }

  /** Settles all that is recorded, and confirms to the broker what it has told. */
  restore(kinds: ValueKinds): void {
    // The latest first: what is dropped goes back to the front.
    for (const number of [...this.#recorded].sort((one, other) => (one < other ? 1 : -1))) {
      this.settle(number, this.#forgetting(number, this.#restored(number, kinds)))
    }
    // What the broker has told is confirmed after all that it settles; that of a call that is sent again, where it is told.
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
      this.#log.error('what a request has taken is lost', { error: messageOf(error) })
      return NOTHING
    }
  }

  /** Resolves when it is known of all requests that are sent again what became of their answers. */
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

  /** The record goes last: an agent that dies before delivers or drops once more. */
  #forgetting(number: bigint, taken: Taken): Taken {
    const forget = () => {
      if (this.#recorded.delete(number)) this.#state.remove(nameOf(number))
    }
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
}

/** A value that is gone with its record. */
const NOTHING = either(() => {})

const NO_VALUE = { response: undefined, outOfMemory: undefined, exit: undefined }

function nameOf(number: bigint): string {
  return `${FOLDER}/${number}`
}
