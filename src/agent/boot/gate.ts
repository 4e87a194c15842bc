import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'

/** Holds every call except Check and Version until the boot has ended, well or not. */
export class BootGate {
  readonly #booted = Promise.withResolvers<void>()

  constructor() {
    // A boot may fail before a call waits; calls that come later still get the reason.
    this.#booted.promise.catch(() => {})
  }

  /** Lets calls go ahead, because the boot has succeeded. The first of `open` and `fail` counts. */
  open(): void {
    this.#booted.resolve()
  }

  /** Fails every call with INTERNAL and the reason, because the boot has failed. */
  fail(reason: string, cause?: unknown): void {
    this.#booted.reject(new AgentError('INTERNAL', `the agent did not boot: ${reason}`, { cause }))
  }

  /** Resolves once the boot has succeeded. Throws its failure, or the reason that `signal` was aborted with. */
  async wait(signal: AbortSignal): Promise<void> {
    await abortable(this.#booted.promise, signal)
  }
}
