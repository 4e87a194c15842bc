import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { LifecyclePayload } from '../../gen/state/lifecycle.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

const NAME = 'lifecycle'

type Fields = Omit<LifecyclePayload, 'schemaVersion'>

/** What outlives the agent of repairs, of detached streams and of the host's clock. */
export class LifecycleRecord {
  readonly #state: StateStore
  readonly #log: Logger
  #fields: Fields = {
    repairs: [],
    detachedUntilNs: 0n,
    kernelLine: 0n,
    clock: undefined,
    kernelLogFromUs: 0n,
  }

  constructor(state: StateStore, log: Logger) {
    this.#state = state
    this.#log = log
  }

  get fields(): Readonly<Fields> {
    return this.#fields
  }

  /** Reads what the previous agent wrote. A damaged record begins anew: the guest must be able to become ready. */
  restore(): void {
    try {
      const payload = this.#state.read(KINDS.lifecycle, NAME)
      if (payload !== undefined) this.#fields = payload
    } catch (error) {
      this.#log.error('repairs of the previous agent unknown', { error: messageOf(error) })
    }
  }

  /** Returns whether the change outlives the agent. It is in force in any case. */
  change(change: Partial<Fields>): boolean {
    this.#fields = { ...this.#fields, ...change }
    try {
      this.#state.write(KINDS.lifecycle, NAME, this.#fields)
      return true
    } catch (error) {
      this.#log.error('state of the repair not saved', { error: messageOf(error) })
      return false
    }
  }
}
