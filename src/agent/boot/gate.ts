import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'

/** Holds calls until the boot has succeeded or failed, except those with `gate: 'open'`. */
export class BootGate {
  readonly #booted = Promise.withResolvers<void>()

  constructor() {
    // Prevents an unhandled rejection when the boot fails before a call waits.
    this.#booted.promise.catch(() => {})
  }

  /** Only the first call of `open` or `fail` has an effect. */
  open(): void {
    this.#booted.resolve()
  }

  /** Every call then fails with INTERNAL and the reason. */
  fail(reason: string, cause?: unknown): void {
    this.#booted.reject(new AgentError('INTERNAL', `the agent did not boot: ${reason}`, { cause }))
  }

  /** Throws the failure of the boot, or the reason of `signal`. */
  async wait(signal: AbortSignal): Promise<void> {
    await abortable(this.#booted.promise, signal)
  }
}
