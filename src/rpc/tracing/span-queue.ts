import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { StartTimer } from '../timer.ts'
import type { FinishedSpan } from './finished-span.ts'

export interface SpanSink {
  readonly name: string
  /** Throws {@link Refused} when the receiver rejects the spans, any other error when they may be sent again. */
  send(spans: readonly FinishedSpan[], signal: AbortSignal): Promise<void>
  close(): void
}

/** The receiver rejects the spans, so they are not sent again. */
export class Refused extends Error {}

const MOST_SPANS = 2048

const BATCH_SPANS = 256

const GATHER_MS = 200

const SEND_MS = 10_000

/** The pause after a failure. The network may be set up only later, by calls that are traced too. */
const PAUSE_MS = 5000

/** How long the stop of the process waits for the remaining spans. */
const STOP_MS = 1000

/** Sends spans to one sink, one batch after the other. Calls never wait for it, and without spans it has no timer. */
export class SpanQueue {
  readonly #sink: SpanSink
  readonly #log: Logger
  readonly #startTimer: StartTimer
  #waiting: FinishedSpan[] = []
  #sendingCount = 0
  #sending: Promise<boolean> | undefined
  #abort = new AbortController()
  #stopTimer: (() => void) | undefined
  #hasWarned = false
  #isStopped = false
  #dropped = 0

  constructor(sink: SpanSink, dependencies: { readonly log: Logger; readonly startTimer: StartTimer }) {
    this.#sink = sink
    this.#log = dependencies.log
    this.#startTimer = dependencies.startTimer
  }

  get dropped(): number {
    return this.#dropped
  }

  add(span: FinishedSpan): void {
    if (this.#isStopped || this.#waiting.length + this.#sendingCount >= MOST_SPANS) this.#dropped += 1
    else this.#waiting.push(span)
    if (!this.#isStopped && this.#sending === undefined) this.#sendLater(GATHER_MS)
  }

  /** Sends the remaining spans for at most {@link STOP_MS}. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#stopTimer?.()
    const stopTimer = this.#startTimer(STOP_MS, () => this.#abort.abort(new Error('the process stops')))
    let isSent = (await this.#sending) ?? true
    while (isSent && this.#waiting.length > 0) isSent = await this.#send()
    stopTimer()
    this.#dropped += this.#waiting.length
    this.#waiting = []
    this.#sink.close()
    if (this.#dropped > 0) {
      this.#log.warn('trace spans dropped', { to: this.#sink.name, count: this.#dropped })
    }
  }

  #sendLater(ms: number): void {
    this.#stopTimer ??= this.#startTimer(ms, () => {
      this.#stopTimer = undefined
      this.#sending = this.#send()
      void this.#sending.then((isSent) => {
        this.#sending = undefined
        if (this.#waiting.length > 0 && !this.#isStopped) this.#sendLater(isSent ? 0 : PAUSE_MS)
      })
    })
  }

  /** Resolves with false when the batch must be sent again; never rejects. */
  async #send(): Promise<boolean> {
    const batch = this.#waiting.splice(0, BATCH_SPANS)
    this.#sendingCount = batch.length
    const late = new AbortController()
    const stopTimer = this.#startTimer(SEND_MS, () =>
      late.abort(new Error(`no answer within ${SEND_MS / 1000} s`)),
    )
    const signal = AbortSignal.any([late.signal, this.#abort.signal])
    try {
      await this.#sink.send(batch, signal)
      return true
    } catch (error) {
      this.#warn(signal.aborted ? signal.reason : error)
      if (error instanceof Refused) {
        this.#dropped += batch.length
        return true
      }
      this.#waiting.unshift(...batch)
      return false
    } finally {
      stopTimer()
      this.#sendingCount = 0
    }
  }

  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    this.#log.warn('trace spans not sent', { to: this.#sink.name, error: messageOf(error) })
  }
}
