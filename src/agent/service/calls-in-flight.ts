import type { StatusCodeName } from '../../base/errors.ts'
import { type Distribution, Histogram } from '../../base/histogram.ts'
import type { LogFields, Logger, LogLevel } from '../../base/log.ts'
import type { StepName, StepRecorder } from '../../base/step.ts'
import { truncate } from '../../base/truncate.ts'
import type { IncomingCall } from '../../rpc/method.ts'
import type { StartTimer } from '../../rpc/timer.ts'
import type { CallTrace, Tracer } from '../tracing/tracer.ts'

/** A step that a call is in. */
export interface OpenStep {
  readonly name: StepName
  readonly detail: string
  /** On the clock of {@link CallsInFlightDependencies.nowMs}. */
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

/** A call that was answered with an error. */
export interface FailedCall {
  readonly rpc: string
  readonly ids: LogFields
  readonly code: StatusCodeName
  /** As the log has it, without what a hook has written. */
  readonly error: string
  /** Whether the caller has made a mistake. */
  readonly callerFault: boolean
  /** On the clock of {@link CallsInFlightDependencies.nowMs}. */
  readonly atMs: number
}

export interface CallsInFlightDependencies {
  readonly log: Logger
  /** Milliseconds of a monotonic clock. */
  readonly nowMs: () => number
  readonly startTimer: StartTimer
  /** Undefined while tracing is off. */
  readonly tracer?: Tracer | undefined
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

/** The least time between two turns of the event loop that are measured. */
const TURNS_APART_MS = 10

/** Lines that one look at the calls writes at most. */
const MOST_LINES = 16

/** How many failed calls are remembered. */
const MOST_FAILED = 16

/** The characters of a remembered error. */
const LONGEST_ERROR = 1000

/** What a hook has written, which may be anything, in the error of the OCI runtime. */
const HOOK_OUTPUT = /, stdout: .*?, stderr: .*?(?= \(hook #[^()]*\)$|$)/s

/**
 * Every call from its arrival until its end, with the steps that it is in, and the last ones that have failed. Logs those
 * that take long.
 */
export class CallsInFlight {
  readonly figures: CallFigures
  readonly #dependencies: CallsInFlightDependencies
  readonly #open = new Set<OpenCall>()
  /** By what they have in common with equal ones, the oldest first. */
  readonly #failed = new Map<string, FailedCall>()
  #watched = 0
  #stopTimer: (() => void) | undefined
  #lookMs = Number.POSITIVE_INFINITY
  #isInTurn = false
  /** No turn of the loop is followed before. */
  #nextTurnMs = 0

  constructor(dependencies: CallsInFlightDependencies) {
    this.#dependencies = dependencies
    this.figures = new CallFigures()
  }

  /** In the order in which they began. */
  list(): readonly CallInFlight[] {
    return [...this.#open]
  }

  /** Remembers a call that fails. A caller that tries again and again does not push the others out. */
  fail({ rpc, ids }: OpenCall, failure: Pick<FailedCall, 'callerFault' | 'code' | 'error'>): void {
    const error = truncate(failure.error.replace(HOOK_OUTPUT, ''), LONGEST_ERROR)
    const key = JSON.stringify([rpc, ids, error])
    this.#failed.delete(key)
    this.#failed.set(key, { ...failure, rpc, ids, error, atMs: this.#dependencies.nowMs() })
    const [oldest] = this.#failed.keys()
    if (this.#failed.size > MOST_FAILED && oldest !== undefined) this.#failed.delete(oldest)
  }

  /** The last calls that have failed, the oldest first. */
  failed(): readonly FailedCall[] {
    return [...this.#failed.values()]
  }

  get size(): number {
    return this.#open.size
  }

  /** Adds a call; its `end` must follow. `waits`: it waits for a process or an event, and is not slow for that. */
  begin(
    { name: rpc, waits }: { readonly name: string; readonly waits: boolean },
    incoming: IncomingCall,
  ): OpenCall {
    const { log, nowMs, tracer } = this.#dependencies
    const isWatched = !waits || log.isLogged('debug')
    const call = new OpenCall({
      ...{ rpc, waits, incoming, nowMs, isWatched, onEnd: () => this.#ended(call) },
      figures: this.figures,
      trace: tracer?.begin(rpc, incoming),
    })
    this.#open.add(call)
    if (isWatched) this.#watched += 1
    if (this.#isInTurn) return call
    if (call.startedMs >= this.#nextTurnMs) this.#followTurn(call.startedMs)
    else if (isWatched) this.#lookAt(call.startedMs + SLOW_MS)
    return call
  }

  #ended(call: OpenCall): void {
    this.#open.delete(call)
    if (!call.isWatched) return
    this.#watched -= 1
    // An idle agent has no timer. Between calls that come close together the timer stays: to make one costs too much.
    if (this.#watched === 0 && this.#dependencies.nowMs() >= this.#nextTurnMs) this.#stopLooking()
  }

  /**
   * Measures the rest of this turn of the event loop: what comes next waits for so long. A timer would measure an idle agent
   * too, and wake it up. Only calls that are not over by then need the timer of slow calls. It adds a turn to the loop, so
   * that it is not done for each of many short calls.
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

  /** Logs the calls whose time has come, and looks again when the next one's has. */
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

interface OpenCallOptions {
  readonly rpc: string
  readonly waits: boolean
  readonly incoming: IncomingCall
  readonly nowMs: () => number
  readonly figures: CallFigures
  /** Whether it is logged when it takes long. */
  readonly isWatched: boolean
  readonly trace: CallTrace | undefined
  readonly onEnd: () => void
}

/** One call in the table. */
export class OpenCall implements CallInFlight, StepRecorder {
  readonly rpc: string
  readonly incoming: IncomingCall
  readonly startedMs: number
  ids: LogFields = {}
  hasCaller = true
  /** How many log lines have said that it takes long. */
  reports = 0
  readonly #options: OpenCallOptions
  #steps: Set<OpenStep> | undefined

  constructor(options: OpenCallOptions) {
    this.rpc = options.rpc
    this.incoming = options.incoming
    this.startedMs = options.nowMs()
    this.#options = options
  }

  get isWatched(): boolean {
    return this.#options.isWatched
  }

  get waits(): boolean {
    return this.#options.waits
  }

  get steps(): readonly OpenStep[] {
    return [...(this.#steps ?? [])]
  }

  begin(name: StepName, detail: string): (error?: unknown) => void {
    const { nowMs, trace } = this.#options
    const step: OpenStep = { name, detail, sinceMs: nowMs() }
    const endSpan = trace?.step(name, detail)
    const steps = this.#steps ?? new Set()
    this.#steps = steps.add(step)
    return (error) => {
      steps.delete(step)
      endSpan?.(error)
    }
  }

  /** The call is answered, with this code if it has failed, and over once the work has ended that goes on without it. */
  end(code?: StatusCodeName, leftWork?: Promise<unknown>): void {
    const { nowMs, figures, trace, onEnd } = this.#options
    trace?.end(this.ids, code)
    figures.answered(this.rpc, nowMs() - this.startedMs, code)
    this.hasCaller = false
    if (leftWork === undefined) onEnd()
    else leftWork.then(onEnd, onEnd)
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

/** The answered calls of one method. */
interface MethodFigures {
  /** Full name, such as `grpc.Health/Check`. */
  readonly rpc: string
  /** Seconds from arrival to answer. */
  readonly seconds: Distribution
  /** The failed ones by their codes. */
  readonly failures: ReadonlyMap<StatusCodeName, number>
}

/** Few, because each method that was called has a series for each. */
const CALL_BOUNDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 300]
const TURN_BOUNDS = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]

/** Counts calls, and how long the event loop lets them wait. */
class CallFigures {
  readonly #methods = new Map<
    string,
    { readonly seconds: Histogram; readonly failures: Map<StatusCodeName, number> }
  >()
  readonly #turns = new Histogram(TURN_BOUNDS)
  /** A turn of the event loop has ended, so long after the first call in it began. */
  turnEnded(ms: number): void {
    this.#turns.observe(ms / 1000)
  }

  /** `code` is undefined for a call that has succeeded. */
  answered(rpc: string, ms: number, code: StatusCodeName | undefined): void {
    let figures = this.#methods.get(rpc)
    if (figures === undefined) {
      figures = { seconds: new Histogram(CALL_BOUNDS), failures: new Map() }
      this.#methods.set(rpc, figures)
    }
    figures.seconds.observe(ms / 1000)
    if (code !== undefined) figures.failures.set(code, (figures.failures.get(code) ?? 0) + 1)
  }

  /** The methods that were called. */
  methods(): readonly MethodFigures[] {
    return [...this.#methods].map(([rpc, { seconds, failures }]) => ({
      rpc,
      seconds: seconds.distribution,
      failures: new Map(failures),
    }))
  }

  /** Seconds that the rest of a turn of the loop took in which a call began. */
  get turns(): Distribution {
    return this.#turns.distribution
  }
}
