import type { StatusCodeName } from '../../base/errors.ts'
import { type Distribution, Histogram } from '../../base/histogram.ts'
import { type Linked, LinkedList } from '../../base/linked-list.ts'
import type { LogFields, Logger, LogLevel } from '../../base/log.ts'
import type { StepName, StepRecorder } from '../../base/step.ts'
import { truncate } from '../../base/truncate.ts'
import { IDEMPOTENCY_KEY, type IncomingCall, type Outcome } from '../../rpc/method.ts'
import type { StartTimer } from '../../rpc/timer.ts'
import type { CallTrace, Tracer } from '../tracing/tracer.ts'

export interface OpenStep {
  readonly name: StepName
  readonly detail: string
  /** On the clock of {@link CallsContext.nowMs}. */
  readonly sinceMs: number
}

export interface CallInFlight {
  /** Full name of the method, such as `grpc.AgentService/CreateContainer`. */
  readonly rpc: string
  readonly incoming: IncomingCall
  /** Empty until the request is decoded. */
  readonly ids: LogFields
  /** The same of the container, however long. */
  readonly containerId: string
  readonly startedMs: number
  /** False for work that outlives its call after a deadline or a hang-up. */
  readonly hasCaller: boolean
  /** Whether the call waits for a process or an event, and whether it changes something. */
  readonly waits: boolean
  readonly changes: boolean
  /** Whether the call has an idempotency key, by which its caller may repeat it. */
  readonly hasKey: boolean
  /** Ends the call with an error; undefined until it is served. */
  readonly interrupt: ((reason: Error) => void) | undefined
  /** Open steps, oldest first; the call waits for the last one. */
  readonly steps: readonly OpenStep[]
}

export interface FailedCall {
  readonly rpc: string
  readonly ids: LogFields
  readonly code: StatusCodeName
  /** As logged, without the output of hooks. */
  readonly error: string
  readonly callerFault: boolean
  /** On the clock of {@link CallsContext.nowMs}. */
  readonly atMs: number
}

export interface CallsContext {
  readonly log: Logger
  /** Milliseconds of a monotonic clock. */
  readonly nowMs: () => number
  readonly startTimer: StartTimer
  /** Undefined while tracing is off. */
  readonly tracer?: Tracer | undefined
}

/** A call is logged after each of these times. */
const SLOW_MS = 5_000
const SLOWER_MS = 30_000
const HANGS_MS = 300_000

const REPORTS: readonly { readonly afterMs: number; readonly level: LogLevel }[] = [
  { afterMs: SLOW_MS, level: 'info' },
  { afterMs: SLOWER_MS, level: 'warn' },
  { afterMs: HANGS_MS, level: 'warn' },
]

/** The least time between two measured iterations of the event loop. */
const TURNS_APART_MS = 10

const MOST_LINES = 16

const MOST_FAILED = 16

const LONGEST_ERROR = 1000

/** The output of a hook in an error of the OCI runtime; it may contain anything. */
const HOOK_OUTPUT = /, stdout: .*?, stderr: .*?(?= \(hook #[^()]*\)$|$)/s

/** All calls until their end, with their open steps, and the last failed calls. Logs calls that take long. */
export class CallsInFlight {
  readonly figures = new CallFigures()
  readonly #dependencies: CallsContext
  readonly #ofAll: OfAllCalls
  readonly #open = new LinkedList<OpenCall>()
  /** Failed calls by (method, ids, error), oldest first. */
  readonly #failed = new Map<string, FailedCall>()
  #watched = 0
  #stopTimer: (() => void) | undefined
  #lookMs = Number.POSITIVE_INFINITY
  #isInTurn = false
  /** The earliest time of the next measured iteration of the event loop. */
  #nextTurnMs = 0

  constructor(dependencies: CallsContext) {
    this.#dependencies = dependencies
    const { figures } = this
    this.#ofAll = { nowMs: dependencies.nowMs, figures, onEnd: (call) => this.#ended(call) }
  }

  /** Oldest first. */
  list(): readonly CallInFlight[] {
    return [...this.#open]
  }

  /** Equal failures count once, so that a caller that retries does not push out the others. */
  fail({ rpc, ids }: OpenCall, failure: Pick<FailedCall, 'callerFault' | 'code' | 'error'>): void {
    const error = truncate(failure.error.replace(HOOK_OUTPUT, ''), LONGEST_ERROR)
    const key = JSON.stringify([rpc, ids, error])
    this.#failed.delete(key)
    this.#failed.set(key, { ...failure, rpc, ids, error, atMs: this.#dependencies.nowMs() })
    const [oldest] = this.#failed.keys()
    if (this.#failed.size > MOST_FAILED && oldest !== undefined) this.#failed.delete(oldest)
  }

  /** Oldest first. */
  failed(): readonly FailedCall[] {
    return [...this.#failed.values()]
  }

  get size(): number {
    return this.#open.size
  }

  /** The caller calls `end` later. `waits`: the call waits for a process or an event, so it is not slow. */
  begin(called: CalledMethod, incoming: IncomingCall): OpenCall {
    const { log, tracer } = this.#dependencies
    const isWatched = !called.waits || log.isLogged('debug')
    const call = new OpenCall(called, incoming, this.#ofAll, isWatched, tracer?.begin(called.name, incoming))
    this.#open.add(call)
    if (isWatched) this.#watched += 1
    if (this.#isInTurn) return call
    if (call.startedMs >= this.#nextTurnMs) this.#followTurn(call.startedMs)
    else if (isWatched) this.#lookAt(call.startedMs + SLOW_MS)
    return call
  }

  #ended(call: OpenCall): void {
    this.#open.remove(call)
    if (!call.isWatched) return
    this.#watched -= 1
    // An idle agent has no timer. Between calls in quick succession it stays, because a new timer costs too much.
    if (this.#watched === 0 && this.#dependencies.nowMs() >= this.#nextTurnMs) this.#stopLooking()
  }

  /**
   * Measures the rest of this iteration of the event loop without a timer, which would wake an idle agent. Only calls that
   * outlive it need the timer of slow calls. It adds an iteration, so many short calls share one.
   */
  #followTurn(beganMs: number): void {
    this.#isInTurn = true
    setImmediate(() => {
      this.#isInTurn = false
      const now = this.#dependencies.nowMs()
      this.#nextTurnMs = now + TURNS_APART_MS
      this.figures.turnEnded(now - beganMs)
      if (this.#watched > 0) this.#lookAt(beganMs + SLOW_MS)
    })
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
    this.#stopTimer = undefined
    this.#lookMs = Number.POSITIVE_INFINITY
  }

  /** Logs the calls that are due, and sets the timer for the next one. */
  #look(): void {
    const { log, nowMs } = this.#dependencies
    const now = nowMs()
    let next = Number.POSITIVE_INFINITY
    let due = 0
    for (const call of this.#open) {
      const report = call.isWatched ? REPORTS[call.reports] : undefined
      if (report === undefined) continue
      if (call.startedMs + report.afterMs <= now) {
        due += 1
        call.reports += 1
        if (due <= MOST_LINES) logSlow(log, call, call.waits ? 'debug' : report.level, now)
      }
      const { afterMs = Number.POSITIVE_INFINITY } = REPORTS[call.reports] ?? {}
      next = Math.min(next, call.startedMs + afterMs)
    }
    if (due > MOST_LINES) log.warn('more calls in progress', { count: due - MOST_LINES })
    if (next < Number.POSITIVE_INFINITY) this.#lookAt(next)
  }
}

interface CalledMethod {
  readonly name: string
  readonly waits: boolean
  readonly changes?: boolean
}

interface OfAllCalls {
  readonly nowMs: () => number
  readonly figures: CallFigures
  readonly onEnd: (call: OpenCall) => void
}

const NO_IDS: LogFields = {}

export class OpenCall implements CallInFlight, Linked<OpenCall>, StepRecorder {
  earlier: OpenCall | undefined
  later: OpenCall | undefined
  readonly incoming: IncomingCall
  readonly startedMs: number
  readonly isWatched: boolean
  ids = NO_IDS
  containerId = ''
  hasCaller = true
  interrupt: ((reason: Error) => void) | undefined
  /** The number of log lines about its duration. */
  reports = 0
  readonly #called: CalledMethod
  readonly #ofAll: OfAllCalls
  readonly #trace: CallTrace | undefined
  #steps: Set<OpenStep> | undefined

  // Five parameters, not an object of them: each call would make one.
  constructor(
    called: CalledMethod,
    incoming: IncomingCall,
    ofAll: OfAllCalls,
    isWatched: boolean,
    trace: CallTrace | undefined,
  ) {
    this.#called = called
    this.incoming = incoming
    this.startedMs = ofAll.nowMs()
    this.isWatched = isWatched
    this.#ofAll = ofAll
    this.#trace = trace
  }

  get rpc(): string {
    return this.#called.name
  }

  get waits(): boolean {
    return this.#called.waits
  }

  get changes(): boolean {
    return this.#called.changes ?? false
  }

  get hasKey(): boolean {
    return this.incoming.metadata?.(IDEMPOTENCY_KEY) !== undefined
  }

  get steps(): readonly OpenStep[] {
    return [...(this.#steps ?? [])]
  }

  begin(name: StepName, detail: string): (error?: unknown) => void {
    const step: OpenStep = { name, detail, sinceMs: this.#ofAll.nowMs() }
    const endSpan = this.#trace?.step(name, detail)
    const steps = this.#steps ?? new Set()
    this.#steps = steps.add(step)
    return (error) => {
      steps.delete(step)
      endSpan?.(error)
    }
  }

  /** Called at the answer, with the code of a failure. The call stays listed until `leftWork` has ended. */
  end(code?: StatusCodeName, leftWork?: Promise<unknown>): void {
    const { nowMs, figures, onEnd } = this.#ofAll
    this.#trace?.end(this.ids, code)
    figures.answered(this.rpc, nowMs() - this.startedMs, code)
    this.hasCaller = false
    if (leftWork === undefined) {
      onEnd(this)
      return
    }
    const ended = () => onEnd(this)
    leftWork.then(ended, ended)
  }
}

function logSlow(log: Logger, call: OpenCall, level: LogLevel, now: number): void {
  const { rpc, ids, incoming, hasCaller, steps, startedMs } = call
  const step = steps.at(-1)
  log.log(level, 'rpc in progress', {
    rpc,
    ...ids,
    ms: (now - startedMs).toFixed(0),
    peer: incoming.peer,
    framing: incoming.framing,
    ...(hasCaller ? {} : { caller: 'left' }),
    ...(step && { step: step.name, of: step.detail, stepMs: (now - step.sinceMs).toFixed(0) }),
  })
}

/** The line that tells how a call ended. `loggedMessage` stands in for a text that is not for the log. */
export function logAnswer(
  log: Logger,
  level: LogLevel,
  answered: {
    readonly open: OpenCall
    readonly ms: number
    readonly outcome: Outcome
    readonly loggedMessage?: string | undefined
    /** The call had been sent before, and was not carried out again. */
    readonly repeated?: boolean
  },
): void {
  if (!log.isLogged(level)) return
  const { loggedMessage, ms, open, outcome, repeated } = answered
  const { rpc, ids, incoming } = open
  const result = outcome.ok ? { code: 'OK' } : { code: outcome.code, error: loggedMessage ?? outcome.message }
  const fields = { rpc, ...ids, ms: ms.toFixed(1), peer: incoming.peer, framing: incoming.framing, repeated }
  log.log(level, 'rpc', { ...fields, ...result })
}

interface MethodFigures {
  readonly rpc: string
  /** Seconds from arrival to answer. */
  readonly seconds: Distribution
  readonly failures: ReadonlyMap<StatusCodeName, number>
}

/** Few bounds, because every called method has a series for each of them. */
const CALL_BOUNDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 300]
const TURN_BOUNDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]

class CallFigures {
  readonly #methods = new Map<
    string,
    { readonly seconds: Histogram; readonly failures: Map<StatusCodeName, number> }
  >()
  readonly #turns = new Histogram(TURN_BOUNDS)
  /** `ms` is the time from the first call of the iteration to its end. */
  turnEnded(ms: number): void {
    this.#turns.observe(ms / 1000)
  }

  /** `code` is undefined for a successful call. */
  answered(rpc: string, ms: number, code: StatusCodeName | undefined): void {
    let figures = this.#methods.get(rpc)
    if (figures === undefined) {
      figures = { seconds: new Histogram(CALL_BOUNDS), failures: new Map() }
      this.#methods.set(rpc, figures)
    }
    figures.seconds.observe(ms / 1000)
    if (code !== undefined) figures.failures.set(code, (figures.failures.get(code) ?? 0) + 1)
  }

  methods(): readonly MethodFigures[] {
    return [...this.#methods].map(([rpc, { seconds, failures }]) => ({
      rpc,
      seconds: seconds.distribution,
      failures: new Map(failures),
    }))
  }

  /** Seconds from the first call of an iteration to the iteration's end. */
  get turns(): Distribution {
    return this.#turns.distribution
  }
}
