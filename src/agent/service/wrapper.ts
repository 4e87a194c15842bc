import { abortable } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger, LogLevel } from '../../base/log.ts'
import { inStep, recordSteps } from '../../base/step.ts'
import { REQUESTS } from '../../gen/message-fields.ts'
import { type CallLimits, limitsOf } from '../../rpc/call-limits.ts'
import { countElements } from '../../rpc/count-elements.ts'
import { encode } from '../../rpc/encode.ts'
import { exhausted, type Totals } from '../../rpc/limits.ts'
import { type Encoded, IDEMPOTENCY_KEY, type Method, type Outcome } from '../../rpc/method.ts'
import { failureLevel, statusOf } from '../../rpc/status.ts'
import { type Call, type Taken, tell } from '../../state/request.ts'
import { EMPTY_RESPONSE } from '../../state/request-journal.ts'
import type { Check } from '../policy/policy.ts'
import { Refusal } from '../policy/verdict.ts'
import { logAnswer } from './calls-in-flight.ts'
import type { Serve, WrapperContext } from './context.ts'
import { servedKeyed } from './keyed-calls.ts'
import { bringUpToDate, decodeRequest, named } from './read-request.ts'
import type { Checks, DeclaredMethod, Rpc } from './rpc.ts'
import { ServedCall } from './served-call.ts'

/**
 * A declared RPC as the framings call it: decodes the request, waits for the boot gate, and has the policy check the
 * request. Ends the call at its deadline or hang-up, turns errors into statuses, and writes one log line.
 */
export function wrap<Request, Response>(
  method: DeclaredMethod<Request, Response>,
  dependencies: WrapperContext,
): Method {
  const { calls } = dependencies
  const serve = served(method, dependencies)
  const serveKeyed = servedKeyed(method, dependencies, serve)
  const called = { name: method.name, waits: method.rpc.turn === 'wait', changes: changesGuest(method.rpc) }
  if (method.rpc.hasSteps === false)
    return (payload, incoming) => serve(payload, incoming, calls.begin(called, incoming))
  return (payload, incoming) => {
    const open = calls.begin(called, incoming)
    const key = serveKeyed && incoming.metadata?.(IDEMPOTENCY_KEY)
    return recordSteps(open, () =>
      serveKeyed === undefined || key === undefined
        ? serve(payload, incoming, open)
        : serveKeyed({ key, payload, incoming, open }),
    )
  }
}

function served<Request, Response>(
  method: DeclaredMethod<Request, Response>,
  { log, gate, admit, policy, totals, calls, requests, names, nowMs }: WrapperContext,
): Serve {
  const { name, types, rpc } = method
  const check = checkOf(method, policy)
  return async (payload, incoming, open, begins) => {
    const limits = limitsOf(incoming, open)
    const taken: Taken[] = []
    let hasFailed = false
    const { data, number = 0n } = incoming
    const call = new ServedCall(incoming, rpc, limits, {
      ageMs: () => incoming.ageMs + nowMs() - open.startedMs,
      beforeEffect: () => {
        if (rpc.recovery === 'at-most-once') requests.answer(call, EMPTY_RESPONSE)
      },
      // The work of a failed call may go on; what it takes then is dropped.
      takes: (one) => (hasFailed ? one.dropped() : void taken.push(one)),
    })
    requests.begin(call)
    let outcome: Outcome
    let loggedMessage: string | undefined
    let level: LogLevel = rpc.logLevel
    let work: Promise<Response> | undefined
    const used = new Used(totals, rpc)
    try {
      used.takeElements(countElements(payload, REQUESTS[name]))
      const request = named(open, decodeRequest(types.request, payload, data))
      limits.throwIfOver()
      if (rpc.gate === 'wait' && !gate.isOpen) await inStep('boot', '', () => gate.wait(limits.signal))
      // Not before the gate: what the previous agent has detached is not known until then.
      admit?.(open)
      const turn = used.beginWork(limits)
      // Do not await a free place: a later call could begin first.
      if (turn !== undefined) await inStep('turn', '', () => turn)
      if (open.incoming.sentBefore === true) bringUpToDate(names, request, open)
      const again = requests.answerTo(number)
      let encoded: Encoded | undefined = again && { payload: await abortable(again, limits.signal) }
      if (encoded === undefined) {
        const checked = check?.(request, call, limits)
        const refusal = checked && (await inStep('policy', '', () => refusalOf(checked)))
        if (refusal === undefined) begins?.()
        work = refusal === undefined ? rpc.handle(request, call) : refused(rpc, request, call, refusal)
        let response: Response
        try {
          response = rpc.onHangup === 'cancel' ? await work : await abortable(work, limits.signal)
        } catch (error) {
          throw causeOf(error, work, method, limits, log)
        }
        encoded = rpc.encode?.(response) ?? { payload: encode(types.response, response) }
      }
      if (again === undefined && rpc.answeredByRecord === true) requests.answerByRecord(call)
      else if (keepsAnswer(rpc)) requests.answer(call, encoded.payload)
      outcome = { ok: true, ...encoded }
      if (taken.length > 0)
        outcome = { ...outcome, delivered: (written) => tell(taken, written, log, { rpc: name }) }
    } catch (error) {
      // A failed call has undone itself, or its work goes on and drops what it takes from now on.
      hasFailed = true
      tell(taken, false, log, { rpc: name })
      outcome = { ok: false, ...statusOf(error) }
      loggedMessage = error instanceof AgentError ? error.loggedMessage : undefined
      const { code, message } = outcome
      const failure = failureLevel(error)
      if (failure !== undefined)
        calls.fail(open, { code, error: loggedMessage ?? message, callerFault: failure === 'warn' })
      level = failure ?? level
    } finally {
      limits.release()
    }
    const left = rpc.onHangup === 'finish' && limits.signal.aborted ? work : undefined
    used.give(left && { work: left, requestBytes: payload.length })
    open.end(outcome.ok ? undefined : outcome.code, left)
    if (log.isLogged(level))
      logAnswer(log, level, { open, ms: nowMs() - open.startedMs, outcome, loggedMessage })
    return outcome
  }
}

/** Waits that take something are no changes, but input is, which a process may have read in part. */
function changesGuest({ recovery, turn, dataField }: Omit<Rpc<never, unknown>, 'handle'>): boolean {
  return recovery !== 'read' && (turn !== 'wait' || dataField !== undefined)
}

/** The policy's check that runs before the handler; undefined without one. */
function checkOf(
  { name, rpc }: Pick<DeclaredMethod<never, unknown>, 'name' | 'rpc'>,
  policy: Checks,
): Check | undefined {
  if (rpc.rule === 'none' || rpc.rule === 'itself') return undefined
  return policy.checkOf(name, rpc.rule === 'request' ? undefined : rpc.rule.message)
}

/** Whether this wrapper records the answer before it is sent. RPCs with `ownJournal` record in their handler. */
function keepsAnswer({
  recovery,
  ownJournal,
}: Pick<Rpc<never, unknown>, 'recovery' | 'ownJournal'>): boolean {
  return recovery === 'at-most-once' || (recovery === 'journaled' && ownJournal !== true)
}

/** The share of the common limits that one call uses. */
class Used {
  readonly #totals: Totals
  readonly #rpc: Pick<Rpc<never, unknown>, 'share' | 'turn'>
  #elements = 0
  #endWork: (() => void) | undefined

  constructor(totals: Totals, rpc: Pick<Rpc<never, unknown>, 'share' | 'turn'>) {
    this.#totals = totals
    this.#rpc = rpc
  }

  takeElements(elements: number): void {
    const refusal = this.#totals.take('elements', elements, this.#rpc.share)
    if (refusal !== undefined) throw exhausted(refusal)
    this.#elements = elements
  }

  /** Waits for the call's turn if the RPC does work. */
  beginWork(limits: Pick<CallLimits, 'signal'>): Promise<void> | undefined {
    if (this.#rpc.turn !== 'work') return undefined
    this.#endWork = this.#totals.tryToWork()
    return this.#endWork === undefined ? this.#waitToWork(limits.signal) : undefined
  }

  async #waitToWork(signal: AbortSignal): Promise<void> {
    this.#endWork = await this.#totals.beginWork(signal)
    signal.throwIfAborted()
  }

  /** Releases the call's share of the limits, at once or at the end of work that outlives its caller. */
  give(left?: { readonly work: Promise<unknown>; readonly requestBytes: number }): void {
    const bytes = left?.requestBytes ?? 0
    this.#totals.takeAnyway('bytes', bytes)
    const giveBack = () => {
      this.#totals.give('bytes', bytes)
      this.#totals.give('elements', this.#elements)
      this.#endWork?.()
    }
    if (left === undefined) giveBack()
    else left.work.then(giveBack, giveBack)
  }
}

async function refusalOf(checked: Promise<void>): Promise<Refusal | undefined> {
  try {
    await checked
    return undefined
  } catch (error) {
    if (error instanceof Refusal) return error
    throw error
  }
}

/** Answers a refused call with the emptied response after the work, or with the refusal. */
async function refused<Request, Response>(
  rpc: Rpc<Request, Response>,
  request: Request,
  call: Call,
  refusal: Refusal,
): Promise<Response> {
  if (rpc.emptied === undefined) throw refusal
  // Discard the output, as if it had been delivered.
  await rpc.handle(request, { ...call, signal: call.signal, takes: (taken) => taken.delivered() })
  return rpc.emptied()
}

/** The signal's reason, once it has fired. For `cancel` the work has undone itself, for `finish` it goes on. */
function causeOf(
  error: unknown,
  work: Promise<unknown>,
  { name, rpc }: Pick<DeclaredMethod<never, unknown>, 'name' | 'rpc'>,
  { signal }: Pick<CallLimits, 'signal'>,
  log: Logger,
): unknown {
  if (!signal.aborted) return error
  if (rpc.onHangup === 'finish') {
    work.catch((late) => log.warn('rpc failed after its caller left', { rpc: name, error: messageOf(late) }))
  }
  return signal.reason
}
