import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'

/** What every call but Check and Version waits for: the end of the boot, for better or worse. */
export class BootGate {
  readonly #booted = Promise.withResolvers<void>()

  constructor() {
    // A boot may fail before anybody waits; whoever asks later still gets the reason.
    this.#booted.promise.catch(() => {})
  }

  /** The boot has ended well: calls go ahead. */
  open(): void {
    this.#booted.resolve()
  }

  /** The boot has failed: every call answers INTERNAL with the reason. The first of `open` and `fail` counts. */
  fail(reason: string, cause?: unknown): void {
    this.#booted.reject(new AgentError('INTERNAL', `the agent did not boot: ${reason}`, { cause }))
  }

  /** Resolves once the boot has ended well; throws its failure, or what `signal` was aborted with. */
  async wait(signal: AbortSignal): Promise<void> {
    await abortable(this.#booted.promise, signal)
  }
}
