import type { LogFields, Logger, LogLevel } from '../../base/log.ts'
import type { StepName, StepRecorder } from '../../base/step.ts'
import { isWait } from '../../rpc/limits.ts'
import type { IncomingCall } from '../../rpc/method.ts'
import type { StartTimer } from '../../rpc/timer.ts'

/** A step that a call is in. */
export interface OpenStep {
  readonly name: StepName
  readonly detail: string
  /** On the clock of {@link CallInFlightDependencies.nowMs}. */
  readonly sinceMs: number
}

/** A call that is not over. */
export interface CallInFlight {
  /** Full name of the method, such as `grpc.AgentService/CreateContainer`. */
  readonly rpc: string
  readonly incoming: IncomingCall
  /** The ids in the request; empty until it is decoded. */
  readonly ids: LogFields
  readonly startedMs: number
  /** False for work that goes on without its caller, who has had the deadline as the answer, or has left. */
  readonly hasCaller: boolean
  /** The steps that are open, in the order in which they began: the last one is what the call waits for. */
  readonly steps: readonly OpenStep[]
}

export interface CallsInFlightDependencies {
  readonly log: Logger
  /** Milliseconds of a monotonic clock. */
  readonly nowMs: () => number
  readonly startTimer: StartTimer
}

/** A call that takes so long is logged, and again after the next of these times. */
const SLOW_MS = 5_000
const SLOWER_MS = 30_000
const HANGS_MS = 300_000

const REPORTS: readonly { readonly afterMs: number; readonly level: LogLevel }[] = [
  { afterMs: SLOW_MS, level: 'info' },
  { afterMs: SLOWER_MS, level: 'warn' },
  { afterMs: HANGS_MS, level: 'warn' },
]

/** Lines that one look at the calls writes at most. */
const MOST_LINES = 16

/** Every call from its arrival until its end, with the steps that it is in. Logs those that take long. */
export class CallsInFlight {
  readonly #dependencies: CallsInFlightDependencies
  readonly #open = new Set<OpenCall>()
  /** The calls that are watched; the timer runs only while there are any. */
  readonly #watched = new Set<OpenCall>()
  #stopTimer: (() => void) | undefined
  #lookMs = Number.POSITIVE_INFINITY

  constructor(dependencies: CallsInFlightDependencies) {
    this.#dependencies = dependencies
  }

  /** In the order in which they began. */
  list(): readonly CallInFlight[] {
    return [...this.#open]
  }

  get size(): number {
    return this.#open.size
  }

  /** Adds a call; its `end` must follow. */
  begin(rpc: string, incoming: IncomingCall): OpenCall {
    const { log, nowMs } = this.#dependencies
    const call = new OpenCall(rpc, incoming, nowMs, () => this.#ended(call))
    this.#open.add(call)
    // A call that only waits for a process may take for ever.
    if (!isWait(rpc) || log.isLogged('debug')) this.#watch(call)
    return call
  }

  #watch(call: OpenCall): void {
    this.#watched.add(call)
    this.#lookAt(call.startedMs + SLOW_MS)
  }

  #ended(call: OpenCall): void {
    this.#open.delete(call)
    // An idle agent has no timer.
    if (this.#watched.delete(call) && this.#watched.size === 0) this.#stopLooking()
  }

  #lookAt(ms: number): void {
    if (ms >= this.#lookMs) return
    this.#stopLooking()
    const { startTimer, nowMs } = this.#dependencies
    this.#lookMs = ms
    this.#stopTimer = startTimer(Math.max(1, Math.ceil(ms - nowMs())), () => {
      this.#lookMs = Number.POSITIVE_INFINITY
      this.#look()
    })
  }

  #stopLooking(): void {
    this.#stopTimer?.()
    this.#lookMs = Number.POSITIVE_INFINITY
  }

  /** Logs the calls whose time has come, and looks again when the next one's has. */
  #look(): void {
    const { log, nowMs } = this.#dependencies
    const now = nowMs()
    let next = Number.POSITIVE_INFINITY
    let due = 0
    for (const call of this.#watched) {
      const report = REPORTS[call.reports]
      if (report === undefined) continue
      if (call.startedMs + report.afterMs <= now) {
        due += 1
        call.reports += 1
        if (due <= MOST_LINES) logSlow(log, call, isWait(call.rpc) ? 'debug' : report.level, now)
      }
      const { afterMs = Number.POSITIVE_INFINITY } = REPORTS[call.reports] ?? {}
      next = Math.min(next, call.startedMs + afterMs)
    }
    if (due > MOST_LINES) log.warn('more calls in progress', { count: due - MOST_LINES })
    if (next < Number.POSITIVE_INFINITY) this.#lookAt(next)
  }
}

/** One call in the table. */
export class OpenCall implements CallInFlight, StepRecorder {
  readonly rpc: string
  readonly incoming: IncomingCall
  readonly startedMs: number
  ids: LogFields = {}
  hasCaller = true
  /** How many lines have told that it takes long. */
  reports = 0
  readonly #nowMs: () => number
  readonly #onEnd: () => void
  readonly #steps = new Set<OpenStep>()

  constructor(rpc: string, incoming: IncomingCall, nowMs: () => number, onEnd: () => void) {
    this.rpc = rpc
    this.incoming = incoming
    this.startedMs = nowMs()
    this.#nowMs = nowMs
    this.#onEnd = onEnd
  }

  get steps(): readonly OpenStep[] {
    return [...this.#steps]
  }

  begin(name: StepName, detail: string): () => void {
    const step: OpenStep = { name, detail, sinceMs: this.#nowMs() }
    this.#steps.add(step)
    return () => void this.#steps.delete(step)
  }

  /** The call is over; without its caller when its work has. */
  end(leftWork?: Promise<unknown>): void {
    this.hasCaller = false
    if (leftWork === undefined) this.#onEnd()
    else leftWork.then(this.#onEnd, this.#onEnd)
  }
}

function logSlow(log: Logger, call: OpenCall, level: LogLevel, now: number): void {
  const { rpc, ids, incoming, hasCaller, steps, startedMs } = call
  const step = steps.at(-1)
  log.log(level, 'rpc in progress', {
    ...{ rpc, ...ids, ms: (now - startedMs).toFixed(0), peer: incoming.peer, framing: incoming.framing },
    ...(hasCaller ? {} : { caller: 'left' }),
    ...(step && { step: step.name, of: step.detail, stepMs: (now - step.sinceMs).toFixed(0) }),
  })
}
