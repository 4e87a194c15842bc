import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import { truncate } from '../../base/truncate.ts'
import { REQUESTS } from '../../gen/message-fields.ts'
import { NO_POLICY_ENGINE, type PolicyEngine, type PolicyEngines } from '../../os/policy/policy-engine.ts'
import { type Call, either, NO_CALLER, type Taken, type TakenByRequests } from '../../state/request.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'
import { AllowedInputs } from './allowed-inputs.ts'
import { checkInput, hasLargeBytes } from './check-input.ts'
import type { InputLog } from './input-log.ts'
import { patchJson } from './json-patch.ts'
import { isDeterministic, mayReadField, mayReadInput } from './policy-text.ts'
import { failed, failure, type Refusal, type Rule, type Verdict, verdictOf } from './verdict.ts'

export interface PolicyContext {
  /** Loads the Rego engine; undefined when this image has none. */
  readonly engines: () => PolicyEngines | undefined
  readonly log: Logger
  /** Undefined when inputs are not recorded. */
  readonly inputLog: InputLog | undefined
  /** Keeps the state, and a policy that a call has set, for the next agent. */
  readonly state: StateStore
}

/**
 * Applies the changes of the state that come with a permission. A repeated call that has changed the state is allowed.
 * Throws a {@link Refusal}, or the reason of the signal of `limits`, by default the call's. Returns undefined while no policy is set.
 */
export type Check = (
  request: unknown,
  call: CheckedCall,
  limits?: { readonly signal: AbortSignal },
) => Promise<void> | undefined

type CheckedCall = Pick<Call, 'hasHappened' | 'number' | 'signal' | 'takes'>

interface Current {
  readonly engine: PolicyEngine
  readonly text: string
  /** The document `data`. */
  state: string
  /** Refused calls pass with a warning. */
  readonly letsAllPass: boolean
  /** Whether any rule may read the input. */
  readonly readsInput: boolean
  /** The rules whose large field this policy does not read. */
  readonly withoutLargeField: readonly string[]
  readonly allowed: AllowedInputs
}

/** The name of the saved record. */
const NAME = 'policy'

const SET_POLICY = 'grpc.AgentService/SetPolicy'
const LET_ALL_PASS = 'AllowRequestsFailingPolicy'

const FRESH_STATE = '{"pstate":{}}'
/** The part of `data` that a rule may change. */
const STATE_ROOT = '/pstate'
const MAX_STATE_CHARACTERS = 1024 * 1024
const MAX_LOGGED_CHARACTERS = 4000

/** Large fields by rule; most policies do not read them. */
const LARGE_FIELDS: Readonly<Record<string, string>> = {
  WriteStreamRequest: 'data',
  CopyFileRequest: 'data',
  SetPolicyRequest: 'policy',
}

/** Without a policy every call passes. */
export class Policy implements TakenByRequests {
  readonly #dependencies: PolicyContext
  /** Checks and replacements run one at a time, so that a check sees the state of the previous one. */
  readonly #queue = new SerialQueue()
  #current: Current | undefined
  /** Requests that have changed the state, until their answers are delivered or dropped. A repeated one is allowed. */
  readonly #changedBy = new Set<bigint>()
  #unfinished = 0

  constructor(dependencies: PolicyContext) {
    this.#dependencies = dependencies
  }

  isSupported(): boolean {
    return this.#dependencies.engines() !== undefined
  }

  /** The rule has the name of the request's message, or of `message`, the full name of one with the same fields. */
  checkOf(method: string, message?: string): Check {
    const rule = ruleOf(method, message)
    return (request, call, limits = call) => {
      const current = this.#current
      if (current === undefined || this.#isAllowedAgain(current, rule, request)) return undefined
      if (this.#changedBy.has(call.number)) return undefined
      const { signal } = limits
      return this.#enqueue(() => this.#check(rule, request, call, signal), signal)
    }
  }

  /** Enforces the previous agent's policy. Returns whether there is one; throws FAILED_PRECONDITION if it is unusable. */
  async restore(): Promise<boolean> {
    const { engines: load, log, state } = this.#dependencies
    try {
      const saved = state.read(KINDS.policy, NAME)
      if (saved === undefined) return false
      const engines = load()
      if (engines === undefined) throw new Error(NO_POLICY_ENGINE)
      const current = await this.#compile(engines, saved.text)
      await current.engine.setData(saved.state)
      this.#current = { ...current, state: saved.state }
      for (const number of saved.allowed) this.#changedBy.add(number)
      log.info('policy restored')
      return true
    } catch (error) {
      const text = `the policy of the previous agent: ${messageOf(error)}`
      throw new AgentError('FAILED_PRECONDITION', text, { cause: error })
    }
  }

  get taken(): TakenByRequests['taken'] {
    return [...this.#changedBy].map((number) => [number, this.#forgetting(number)])
  }

  /** Throws FAILED_PRECONDITION, naming the file, without an engine or for a policy that cannot be parsed. */
  async load({ path, text }: { readonly path: string; readonly text: string }): Promise<void> {
    const { engines: load, log } = this.#dependencies
    const engines = load()
    if (engines === undefined) {
      throw new AgentError('FAILED_PRECONDITION', `policy file ${path}: ${NO_POLICY_ENGINE}`)
    }
    try {
      this.#current = await this.#compile(engines, text)
    } catch (error) {
      throw new AgentError('FAILED_PRECONDITION', `policy file ${path}: ${messageOf(error)}`, {
        cause: error,
      })
    }
    log.info('policy loaded', { path })
  }

  /** Resets the state too. A failure changes nothing: NOT_FOUND without an engine, INVALID_ARGUMENT for a wrong text. */
  async replace(request: { readonly policy: string }, call: Call): Promise<void> {
    const engines = this.#dependencies.engines()
    if (engines === undefined) throw new AgentError('NOT_FOUND', `/${SET_POLICY} is not supported`)
    await this.#enqueue(async () => {
      if (this.#changedBy.has(call.number)) return
      await this.#check(ruleOf(SET_POLICY), request, NO_CALLER, call.signal)
      const next = await this.#compile(engines, request.policy).catch(refuseText)
      try {
        this.#save(next, call)
      } catch (error) {
        next.engine.close()
        throw error
      }
      this.#current?.engine.close()
      this.#current = next
      this.#dependencies.log.info('policy set', { characters: request.policy.length })
    }, call.signal)
  }

  async #compile(engines: PolicyEngines, text: string): Promise<Current> {
    const engine = await engines.compile(text)
    try {
      await engine.setData(FRESH_STATE)
      const unread = Object.entries(LARGE_FIELDS).filter(([, field]) => !mayReadField(text, field))
      return {
        engine,
        text,
        state: FRESH_STATE,
        letsAllPass: await this.#letsAllPass(engine),
        readsInput: mayReadInput(text),
        withoutLargeField: unread.map(([rule]) => rule),
        allowed: new AllowedInputs(isDeterministic(text)),
      }
    } catch (error) {
      engine.close()
      throw error
    }
  }

  async #letsAllPass(engine: PolicyEngine): Promise<boolean> {
    const { log, inputLog } = this.#dependencies
    inputLog?.add(LET_ALL_PASS, '{}')
    try {
      const { value } = await engine.evaluate(LET_ALL_PASS, '{}')
      if (value === 'true') log.warn('policy lets refused calls pass', { rule: LET_ALL_PASS })
      return value === 'true'
    } catch {
      log.warn('rule not evaluated: counts as false', { rule: LET_ALL_PASS })
      return false
    }
  }

  async #enqueue(task: () => Promise<void>, signal: AbortSignal): Promise<void> {
    this.#unfinished += 1
    try {
      await this.#queue.run(task, signal)
    } finally {
      this.#unfinished -= 1
    }
  }

  /** False while checks run, because they may still change the state. */
  #isAllowedAgain(current: Current, rule: Rule, request: unknown): boolean {
    const isRecorded = this.#dependencies.inputLog !== undefined
    if (this.#unfinished > 0 || isRecorded || !current.allowed.hasAny(rule.name)) return false
    if (current.readsInput && hasLargeBytes(request, unreadField(current, rule))) return false
    return current.allowed.has(rule.name, this.#inputOf(current, rule, request))
  }

  /** Leaves out the fields that the policy cannot read, unless inputs are recorded. */
  #inputOf(current: Current, rule: Rule, request: unknown): string {
    if (this.#dependencies.inputLog !== undefined) return checkInput(rule.message, request)
    return current.readsInput ? checkInput(rule.message, request, unreadField(current, rule)) : '{}'
  }

  async #check(rule: Rule, request: unknown, call: CheckedCall, signal: AbortSignal): Promise<void> {
    const current = this.#current
    if (current === undefined) return
    const verdict = await this.#evaluate(current, rule, request)
    signal.throwIfAborted()
    const ops = verdict.allowed && call.hasHappened !== true ? verdict.ops : []
    const refusal = verdict.allowed ? await this.#applyOps(current, rule, ops, call) : verdict.refusal
    if (refusal === undefined) return
    if (!current.letsAllPass) throw refusal
    this.#dependencies.log.warn('refused call let pass', { reason: refusal.loggedMessage })
  }

  async #evaluate(current: Current, rule: Rule, request: unknown): Promise<Verdict> {
    const { log, inputLog } = this.#dependencies
    const input = this.#inputOf(current, rule, request)
    inputLog?.add(rule.name, input)
    try {
      const outcome = await current.engine.evaluate(rule.name, input)
      if (outcome.value === 'true' && outcome.prints.length === 0) current.allowed.add(rule.name, input)
      if (outcome.prints.length > 0 && log.isLogged('debug')) {
        const text = truncate(outcome.prints.join(' '), MAX_LOGGED_CHARACTERS)
        log.debug('policy prints', { rule: rule.name, text })
      }
      return verdictOf(rule, outcome)
    } catch (error) {
      return failed(rule, messageOf(error))
    }
  }

  /** Applies all changes of the state or none. Returns the reason of a failure. */
  async #applyOps(
    current: Current,
    rule: Rule,
    ops: readonly unknown[],
    call: CheckedCall,
  ): Promise<Refusal | undefined> {
    if (ops.length === 0) return undefined
    try {
      const state = patchJson(current.state, ops, STATE_ROOT)
      if (state.length > MAX_STATE_CHARACTERS) {
        throw new Error(`ops: ${state.length} characters of state, want at most ${MAX_STATE_CHARACTERS}`)
      }
      await current.engine.setData(state)
      try {
        this.#save({ ...current, state }, call)
      } catch (error) {
        await current.engine.setData(current.state)
        throw error
      }
      current.state = state
      current.allowed.clear()
      return undefined
    } catch (error) {
      return failure(rule, messageOf(error))
    }
  }

  #forgetting(number: bigint): Taken {
    return either(() => void this.#changedBy.delete(number))
  }

  /** Saves the state and the number of the call in one write. */
  #save({ text, state }: Pick<Current, 'text' | 'state'>, { number, takes }: CheckedCall): void {
    const numbers = number === 0n ? [] : [number]
    this.#dependencies.state.write(KINDS.policy, NAME, {
      text,
      state,
      allowed: [...this.#changedBy, ...numbers],
    })
    if (number === 0n) return
    this.#changedBy.add(number)
    takes(this.#forgetting(number))
  }
}

function unreadField({ withoutLargeField }: Current, { name }: Rule): string | undefined {
  return withoutLargeField.includes(name) ? LARGE_FIELDS[name] : undefined
}

function ruleOf(method: string, message = REQUESTS[method]): Rule {
  if (message === undefined) throw new AgentError('INTERNAL', `${method}: not a known method`)
  return {
    name: message.slice(message.lastIndexOf('.') + 1),
    message,
    isExpected: method.startsWith('grpc.AgentService/'),
  }
}

/** The parser quotes the policy, which may contain environments and arguments, so the log gets another text. */
function refuseText(error: unknown): never {
  throw new AgentError('INVALID_ARGUMENT', `policy: ${messageOf(error)}`, {
    cause: error,
    loggedMessage: 'policy: cannot be used',
  })
}
