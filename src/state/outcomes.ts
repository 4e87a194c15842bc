import { KINDS, type StateStore } from './state-store.ts'

const FOLDER = 'outcomes'

/**
 * The outcomes of requests, by the broker's numbers, until their answers were written to the host or never will be: a
 * restarted agent that gets such a request again answers it from here. Number 0 stands for a request without one, which is
 * not sent again: nothing is recorded.
 */
export class Outcomes {
  readonly #state: StateStore

  constructor(state: StateStore) {
    this.#state = state
  }

  /**
   * Records the encoded answer, which is not sent yet: once the request was carried out, or, for one that must not be
   * begun twice, before.
   */
  answer(number: bigint, response: Uint8Array): void {
    if (number !== 0n) this.#state.write(KINDS.outcome, nameOf(number), { request: number, response })
  }

  /** The answer to a request; undefined when none is recorded. Throws UnreadableState. */
  of(number: bigint): Uint8Array | undefined {
    if (number === 0n) return undefined
    return this.#state.read(KINDS.outcome, nameOf(number))?.response
  }

  /** The answer was written, or never will be. */
  forget(number: bigint): void {
    if (number !== 0n) this.#state.remove(nameOf(number))
  }

  /** Forgets the requests that are not sent again. */
  keepOnly(isOpen: (number: bigint) => boolean): void {
    for (const name of this.#state.list(FOLDER)) {
      if (!isOpen(BigInt(name))) this.#state.remove(`${FOLDER}/${name}`)
    }
  }
}

function nameOf(number: bigint): string {
  return `${FOLDER}/${number}`
}

/** The encoded `google.protobuf.Empty`. */
export const EMPTY_RESPONSE = new Uint8Array(0)
