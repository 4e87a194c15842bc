import { neverAborted } from '../../../src/base/abort.ts'
import { messageOf } from '../../../src/base/errors.ts'
import { SerialQueue } from '../../../src/base/serial-queue.ts'
import {
  type PolicyEngine,
  type PolicyEngines,
  PolicyError,
  type RuleOutcome,
} from '../../../src/os/policy/policy-engine.ts'

export interface RuleContext {
  readonly input: Readonly<Record<string, unknown>>
  readonly data: { readonly pstate: Readonly<Record<string, unknown>> }
  print(text: string): void
}

/** Returns the rule's value, or undefined for none. Throws PolicyError when it cannot be evaluated. */
type FakeRule = (context: RuleContext) => unknown

export type FakePolicy = Readonly<Record<string, FakeRule>>

export interface Evaluation {
  readonly rule: string
  readonly input: string
}

/** Engines for policies whose rules the test gives as functions. Any other text cannot be parsed. */
export class FakePolicyEngines implements PolicyEngines {
  readonly evaluations: Evaluation[] = []
  open = 0
  /** Delays every evaluation, like a busy thread. */
  busy: Promise<void> = Promise.resolve()
  readonly #policies: Readonly<Record<string, FakePolicy>>

  constructor(policies: Readonly<Record<string, FakePolicy>>) {
    this.#policies = policies
  }

  async compile(text: string): Promise<PolicyEngine> {
    const policy = this.#policies[text]
    if (policy === undefined) throw new PolicyError(`policy:1:1: ${text} is no policy`)
    const queue = new SerialQueue()
    let data: RuleContext['data'] = { pstate: {} }
    let isOpen = true
    const run = <T>(job: () => Promise<T>): Promise<T> =>
      isOpen ? queue.run(job, neverAborted) : Promise.reject(new PolicyError('the policy engine is closed'))
    this.open += 1
    return {
      setData: (json) =>
        run(async () => {
          const value = parsed('data', json)
          if (value?.constructor !== Object) throw new PolicyError('data: no object')
          data = value
        }),
      evaluate: (rule, input) => {
        this.evaluations.push({ rule, input })
        return run(async () => {
          await this.busy
          if (!/^\w+$/.test(rule)) throw new PolicyError(`rule "${rule}": no name of a rule`)
          return outcomeOf(policy[rule], { input: parsed('input', input), data })
        })
      },
      close: () => {
        if (isOpen) this.open -= 1
        isOpen = false
      },
    }
  }
}

function parsed(what: string, json: string) {
  try {
    return JSON.parse(json)
  } catch (error) {
    throw new PolicyError(`${what}: ${messageOf(error)}`)
  }
}

function outcomeOf(rule: FakeRule | undefined, context: Omit<RuleContext, 'print'>): RuleOutcome {
  const prints: string[] = []
  const value = rule?.({ ...context, print: (text) => prints.push(text) })
  return { value: value === undefined ? undefined : JSON.stringify(value), prints }
}
