import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'

/** Holds calls until the boot has succeeded or failed, except those with `gate: 'open'`. */
export class BootGate {
  readonly #booted = Promise.withResolvers<void>()
  #state: 'closed' | 'open' | 'failed' = 'closed'

  constructor() {
    // Prevents an unhandled rejection when the boot fails before a call waits.
    this.#booted.promise.catch(() => {})
  }

  /** Only the first call of `open` or `fail` has an effect. */
  open(): void {
    if (this.#state === 'closed') this.#state = 'open'
    this.#booted.resolve()
  }

  /** Every call then fails with INTERNAL and the reason. */
  fail(reason: string, cause?: unknown): void {
    if (this.#state === 'closed') this.#state = 'failed'
    this.#booted.reject(new AgentError('INTERNAL', `the agent did not boot: ${reason}`, { cause }))
  }

  /** Whether {@link wait} would return at once. */
  get isOpen(): boolean {
    return this.#state === 'open'
  }

  /** Throws the failure of the boot, or the reason of `signal`. */
  async wait(signal: AbortSignal): Promise<void> {
    await abortable(this.#booted.promise, signal)
  }
}
