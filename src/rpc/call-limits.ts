import { cancelled, deadlineExceeded, LateAbort, LONGEST_TIMER_MS } from '../base/abort.ts'
import type { IncomingCall } from './method.ts'

interface Interruptible {
  /** Fires the signal with another reason. */
  interrupt: ((reason: Error) => void) | undefined
}

export function limitsOf(
  incoming: Pick<IncomingCall, 'hangup' | 'timeoutMs'>,
  call?: Interruptible,
): CallLimits {
  const limits = new CallLimits(incoming)
  if (call !== undefined) call.interrupt = (reason) => limits.interrupt(reason)
  return limits
}

/** The end of a call by its caller, by its deadline, or by an interruption. The caller calls `release` at its end. */
export class CallLimits {
  readonly #incoming: Pick<IncomingCall, 'hangup' | 'timeoutMs'>
  readonly #abort = new LateAbort()
  readonly #timer: NodeJS.Timeout | undefined
  #onHangup: (() => void) | undefined
  #isReleased = false

  constructor(incoming: Pick<IncomingCall, 'hangup' | 'timeoutMs'>) {
    this.#incoming = incoming
    const { timeoutMs } = incoming
    // A timer would fire too late: the call would begin.
    if (timeoutMs === 0) this.interrupt(deadlineExceeded())
    else if (timeoutMs !== undefined) {
      this.#timer = setTimeout(
        () => this.interrupt(deadlineExceeded()),
        Math.min(timeoutMs, LONGEST_TIMER_MS),
      )
    }
  }

  /** Fires at the hang-up, at the deadline, and at the interruption. Made at its first use. */
  get signal(): AbortSignal {
    if (this.#onHangup === undefined) {
      const { hangup } = this.#incoming
      this.#onHangup = () => this.interrupt(cancelled())
      if (hangup.aborted) this.#onHangup()
      else if (!this.#isReleased) hangup.addEventListener('abort', this.#onHangup, { once: true })
    }
    return this.#abort.signal
  }

  interrupt(reason: Error): void {
    this.#abort.abort(reason)
  }

  /** Throws if the deadline was over at the call's arrival. */
  throwIfOver(): void {
    this.#abort.throwIfAborted()
  }

  release(): void {
    this.#isReleased = true
    clearTimeout(this.#timer)
    if (this.#onHangup !== undefined) this.#incoming.hangup.removeEventListener('abort', this.#onHangup)
  }
}
