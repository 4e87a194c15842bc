import { abortable, deadlineExceeded, neverAborted } from '../../base/abort.ts'
import type { LogLevel } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import { REQUESTS } from '../../gen/message-fields.ts'
import { limitsOf } from '../../rpc/call-limits.ts'
import { canonicalBytes } from '../../rpc/canonical.ts'
import { countElements } from '../../rpc/count-elements.ts'
import { encode } from '../../rpc/encode.ts'
import { LIMITS } from '../../rpc/limits.ts'
import type { IncomingCall, Outcome } from '../../rpc/method.ts'
import { failureLevel, statusOf } from '../../rpc/status.ts'
import { NO_CALLER, type Taken, tell } from '../../state/request.ts'
import type { Check } from '../policy/policy.ts'
import { logAnswer, type OpenCall } from './calls-in-flight.ts'
import type { Serve, WrapperContext } from './context.ts'
import { type KeptCall, type KeyedCall, wrongKey } from './kept-outcomes.ts'
import { decodeRequest, named } from './read-request.ts'
import { type DeclaredMethod, keyUseOf } from './rpc.ts'

interface Keyed {
  readonly key: string
  readonly payload: Uint8Array
  readonly incoming: IncomingCall
  readonly open: OpenCall
}

/** A run by this agent, which its first caller has begun. */
interface Run {
  callers: number
  readonly over: AbortController
}

/** What a caller has come to: its call, and the run that it has begun or joined. */
interface Joined {
  kept: KeptCall | undefined
  isFirst: boolean
  /** What the previous agent took for this request of the broker. */
  readonly taken: Taken[]
}

/**
 * Serves the calls of a method that have an idempotency key: `serve` runs once for equal ones, whichever connection they
 * come by. A repeated call is checked against the policy, and then gets the outcome of the first, or waits for it. Returns
 * undefined for a method that ignores keys.
 */
export function servedKeyed<Request, Response>(
  method: DeclaredMethod<Request, Response>,
  context: WrapperContext,
  serve: Serve,
): ((keyed: Keyed) => Promise<Outcome>) | undefined {
  if (keyUseOf(method.rpc) === 'ignored') return undefined
  const keyed = new KeyedMethod(method, context, serve)
  return (one) => keyed.serve(one)
}

class KeyedMethod<Request, Response> {
  readonly #method: DeclaredMethod<Request, Response>
  readonly #context: WrapperContext
  readonly #serve: Serve
  readonly #check: Check | undefined
  readonly #runs = new WeakMap<KeptCall, Run>()

  constructor(method: DeclaredMethod<Request, Response>, context: WrapperContext, serve: Serve) {
    this.#method = method
    this.#context = context
    this.#serve = serve
    const { rule } = method.rpc
    // SetPolicy is not checked against the policy that it has set.
    if (rule !== 'none' && rule !== 'itself')
      this.#check = context.policy.checkOf(method.name, rule === 'request' ? undefined : rule.message)
  }

  async serve(keyed: Keyed): Promise<Outcome> {
    const { log, nowMs } = this.#context
    const { name, rpc } = this.#method
    const { incoming, open } = keyed
    const limits = limitsOf(incoming)
    const joined: Joined = { kept: undefined, isFirst: false, taken: [] }
    let outcome: Outcome
    let level: LogLevel = rpc.logLevel
    try {
      outcome = await this.#outcomeFor(keyed, limits.signal, joined)
    } catch (error) {
      outcome = { ok: false, ...statusOf(error) }
      level = failureLevel(error) ?? level
    } finally {
      limits.release()
    }
    const { kept, isFirst, taken } = joined
    if (isFirst) open.hasCaller = false
    else {
      open.end(outcome.ok ? undefined : outcome.code)
      const ms = nowMs() - open.startedMs
      logAnswer(log, level, { open, ms, outcome, repeated: kept !== undefined })
    }
    if (!outcome.ok) {
      tell(taken, false, log, { rpc: name })
      if (kept !== undefined) kept.isDelivered = true
      return outcome
    }
    const { delivered, ...answer } = outcome
    const told = (written: boolean) => {
      if (isFirst) delivered?.(written)
      tell(taken, written, log, { rpc: name })
      if (written && kept !== undefined) kept.isDelivered = true
    }
    return { ...answer, delivered: told }
  }

  async #outcomeFor({ key, payload, incoming, open }: Keyed, signal: AbortSignal, joined: Joined) {
    const { gate, outcomes, requests } = this.#context
    const { name, types, rpc } = this.#method
    checkKey(key)
    if (keyUseOf(rpc) === 'refused') throw wrongKey(`${name} takes none`)
    countElements(payload, REQUESTS[name])
    const request = named(open, decodeRequest(types.request, payload, incoming.data))
    // The broker's file would be lost with the connection.
    const whole = incoming.data === undefined ? payload : encode(types.request, request)
    // Loaded on demand: most agents never need it.
    const { createHash } = process.getBuiltinModule('node:crypto')
    const digest = createHash('sha256').update(canonicalBytes(types.request, request)).digest()
    signal.throwIfAborted()
    await inStep('boot', '', () => gate.wait(signal))
    requests.begin({ number: incoming.number ?? 0n, takes: (one) => void joined.taken.push(one) })
    const call = { idempotencyKey: key, method: name, digest }
    let known = await this.#known(call, request, signal)
    // An equal call may have come to this place meanwhile.
    while (known !== outcomes.find(call)) known = await this.#known(call, request, signal)
    const ended = known && outcomes.outcomeOf(known)
    joined.kept = known ?? outcomes.add(call)
    if (ended !== undefined) return ended
    joined.isFirst = joined.kept.running === undefined
    if (joined.isFirst) this.#start(joined.kept, { key, payload: whole, incoming, open })
    return await this.#joined(joined.kept, signal, joined.isFirst)
  }

  /** Throws a refusal of the policy, which is asked about each repetition. */
  async #known(call: KeyedCall, request: Request, signal: AbortSignal): Promise<KeptCall | undefined> {
    const { outcomes } = this.#context
    if (outcomes.find(call) === undefined) return undefined
    const checked = this.#check?.(request, { ...NO_CALLER, signal, hasHappened: true })
    if (checked !== undefined) await inStep('policy', '', () => checked)
    let known = outcomes.find(call)
    while (known?.running !== undefined && this.#runs.get(known)?.over.signal.aborted === true) {
      await abortable(known.running, signal)
      known = outcomes.find(call)
    }
    return known
  }

  #start(kept: KeptCall, { payload, incoming, open }: Keyed): void {
    const { outcomes, totals } = this.#context
    const over = new AbortController()
    const own: IncomingCall = {
      ...incoming,
      number: kept.record.number,
      sentBefore: kept.isRestored,
      data: undefined,
      hangup: this.#ends ? over.signal : neverAborted,
      // Work that undoes itself still does so at the first caller's deadline.
      timeoutMs: this.#isUndone ? incoming.timeoutMs : undefined,
    }
    this.#runs.set(kept, { callers: 0, over })
    kept.hasBegun = false
    // The framing no longer counts them once the caller has left.
    totals.takeAnyway('bytes', payload.length)
    kept.running = this.#serve(payload, own, open, () => outcomes.begin(kept)).then((outcome) => {
      totals.give('bytes', payload.length)
      return outcomes.end(kept, outcome)
    })
  }

  /** Waits for the outcome of a run. Throws the reason of `signal`; the run may end with its last caller. */
  async #joined(kept: KeptCall, signal: AbortSignal, isFirst: boolean): Promise<Outcome> {
    const { running } = kept
    const run = this.#runs.get(kept)
    if (running === undefined || run === undefined) throw new Error('the call does not run')
    run.callers += 1
    try {
      return await abortable(running, signal)
    } catch (error) {
      if (isFirst && this.#isUndone && signal.reason === deadlineExceeded()) return await running
      if (isFirst) void running.then((outcome) => outcome.ok && outcome.delivered?.(false))
      throw error
    } finally {
      run.callers -= 1
      if (this.#ends && run.callers === 0 && signal.aborted) run.over.abort()
    }
  }

  get #ends(): boolean {
    return keyUseOf(this.#method.rpc) === 'ends'
  }

  get #isUndone(): boolean {
    return this.#method.rpc.onHangup === 'cancel' && !this.#ends
  }
}

function checkKey(key: string): void {
  const bytes = Buffer.byteLength(key)
  const { keyBytes } = LIMITS.keyed
  if (bytes < 1 || bytes > keyBytes) throw wrongKey(`${bytes} bytes, want 1 to ${keyBytes}`)
}
